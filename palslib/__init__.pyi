from palslib.data.submission import write_submission as write_submission
from palslib.data.tasks import TASKS as TASKS
from palslib.data.tasks import Task as Task
from palslib.data.tasks import load_rows as load_rows
from palslib.grid.sweep import Grid as Grid
from palslib.methods.counting import count_parameters as count_parameters
from palslib.methods.counting import fit_budget as fit_budget
from palslib.methods.operations import count_operations as count_operations
from palslib.methods.table import METHODS as METHODS
from palslib.methods.table import Method as Method
from palslib.methods.table import get_method as get_method
from palslib.model.learned import load_trained as load_trained
from palslib.model.multi_task import MultiTaskModel as MultiTaskModel
from palslib.plan.config import RunConfig as RunConfig
from palslib.plan.sampling import TrainingPlan as TrainingPlan
from palslib.plan.sampling import annealed_alpha as annealed_alpha
from palslib.plan.sampling import task_probabilities as task_probabilities
from palslib.records import load_records as load_records
from palslib.study.analysis.identity import measured as measured
from palslib.training.in_turn import train_in_turn as train_in_turn
from palslib.training.loop import evaluate as evaluate
from palslib.training.loop import train as train
from palslib.training.pretraining import pretrain as pretrain

__version__: str
