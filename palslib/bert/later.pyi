import torch as torch
from torch import nn as nn
from torch.nn import Module as Module
from torch.nn import functional as functional
from transformers import activations as activations

from palslib.bert.attention import attend as attend
from palslib.bert.dropout import drop as drop
from palslib.bert.rows import Rows as Rows
