"""The tables beside the records are those of the records, and the second study's grids those that its tuning chose."""

import pandas as pd
import pytest
from second_study import ARMS, ONE_RATE
from write_tables import RATES, TABLES

from palslib.common.places import RECORDS
from palslib.grid.sweep import Grid


@pytest.mark.parametrize("name", TABLES)
def test_a_frozen_table_is_that_of_its_records(name):
    frozen, again = pd.read_csv(RECORDS / f"{name}.csv"), TABLES[name]().reset_index(drop=True).replace("", None)
    pd.testing.assert_frame_equal(frozen, again, check_dtype=False, rtol=1e-5)


def test_the_second_studys_grids_are_those_that_the_tuning_chose(tmp_path):
    """PLAN.md, 2 and 3: the chosen settings; PALs at the rate of `shared`; a BERT for each task at that rate."""
    chosen = pd.read_csv(RECORDS / "tuning.csv").query("chosen").set_index("method")[RATES].T.to_dict("list")
    arms = {c.arm: [c.learning_rate, c.adaptation_rate] for c in Grid.named("confirmation").configs(tmp_path)}
    assert arms == chosen | {ONE_RATE: chosen["shared"]} and list(arms) == list(ARMS)
    alone = Grid.named("separate").configs(tmp_path)
    assert {c.learning_rate for c in alone} == {chosen["shared"][0]} and len({c.tasks for c in alone}) == 8
