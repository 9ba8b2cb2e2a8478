"""The policies by the name a virtual cluster chooses them by."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from resilin.planning.policies.edf import EarliestDeadlineFirst
from resilin.planning.policies.elasticflow import ElasticFlow
from resilin.planning.policies.fifo import FirstInFirstOut
from resilin.planning.policies.policy import Policy

__all__ = ["POLICIES"]

_ALL: tuple[Policy, ...] = (ElasticFlow(), EarliestDeadlineFirst(), FirstInFirstOut())

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
