"""torch is imported with the first module, not with the methods' files; from then on their classes are torch's."""

import subprocess
import sys

CODE = """
import sys
from palslib.methods.pal import PALs, Projection
from palslib.methods.table import METHODS
assert "torch" not in sys.modules
one = Projection(3, 2)
import copy, pickle, torch
assert isinstance(one, torch.nn.Module) and issubclass(PALs, torch.nn.Module) and one(torch.ones(4, 3)).shape == (4, 3)
assert list(one.state_dict()) == ["encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"]
for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
    assert type(other) is Projection and torch.equal(other.encoder.weight, one.encoder.weight)
"""


def test_the_first_module_imports_torch():
    """In a process of its own, as this one has torch already."""
    assert subprocess.run([sys.executable, "-c", CODE]).returncode == 0
