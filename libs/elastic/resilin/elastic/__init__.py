"""The elastic worker runtime: user API, leader and workers of one job."""

from resilin.elastic.api import ElasticJob, EndCondition, Hyperparameters, Loss
from resilin.elastic.context import Context, context

__all__ = ["Context", "ElasticJob", "EndCondition", "Hyperparameters", "Loss", "context"]
