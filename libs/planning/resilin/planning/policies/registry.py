"""The policies by the name a virtual cluster chooses them by."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from resilin.planning.policies.chronus import Chronus
from resilin.planning.policies.edf import EarliestDeadlineFirst
from resilin.planning.policies.edf_admission import EarliestDeadlineFirstWithAdmission
from resilin.planning.policies.edf_elastic import EarliestDeadlineFirstElastic
from resilin.planning.policies.elastic_tiresias import ElasticTiresias
from resilin.planning.policies.elasticflow import ElasticFlow
from resilin.planning.policies.fifo import FirstInFirstOut
from resilin.planning.policies.gandiva import Gandiva
from resilin.planning.policies.optimus import Optimus
from resilin.planning.policies.policy import Policy
from resilin.planning.policies.pollux import Pollux
from resilin.planning.policies.sjf import ShortestJobFirst
from resilin.planning.policies.themis import Themis
from resilin.planning.policies.tiresias import Tiresias, TiresiasGittins

__all__ = ["POLICIES"]

_ALL: tuple[Policy, ...] = (
    ElasticFlow(),
    EarliestDeadlineFirst(capped=True),
    EarliestDeadlineFirst(capped=False),
    EarliestDeadlineFirstWithAdmission(),
    EarliestDeadlineFirstElastic(),
    FirstInFirstOut(),
    ShortestJobFirst(),
    Gandiva(),
    Tiresias(),
    TiresiasGittins(),
    ElasticTiresias(),
    Themis(),
    Chronus(),
    Optimus(),
    Pollux(),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
