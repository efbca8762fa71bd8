"""What is deleted, whether it can be measured, and where it is looked for. No torch."""

from vestige.deletion.bundles import BundlePlan, hash_order, plan_bundles
from vestige.deletion.clusters import Clustering, cluster_intents, one_per_parent
from vestige.deletion.gates import (
    AcquisitionGate,
    acquisition_gate,
    association_gate,
    gate_exceptions,
    intervention_gate,
)
from vestige.deletion.requests import (
    DeletionRequest,
    GateException,
    association_request,
    class_request,
    custom_request,
    example_request,
)
from vestige.deletion.views import build_views

__all__ = [
    "AcquisitionGate",
    "BundlePlan",
    "Clustering",
    "DeletionRequest",
    "GateException",
    "acquisition_gate",
    "association_gate",
    "association_request",
    "build_views",
    "class_request",
    "cluster_intents",
    "custom_request",
    "example_request",
    "gate_exceptions",
    "hash_order",
    "intervention_gate",
    "one_per_parent",
    "plan_bundles",
]
