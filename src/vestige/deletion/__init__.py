"""What is deleted, whether it can be measured, and where it is looked for. No torch."""

from vestige.deletion.bundles import BundlePlan, hash_order, plan_bundles
from vestige.deletion.gates import AcquisitionGate, acquisition_gate, gate_exceptions, intervention_gate
from vestige.deletion.requests import (
    DeletionRequest,
    GateException,
    class_request,
    custom_request,
)
from vestige.deletion.views import build_views

__all__ = [
    "AcquisitionGate",
    "BundlePlan",
    "DeletionRequest",
    "GateException",
    "acquisition_gate",
    "build_views",
    "class_request",
    "custom_request",
    "gate_exceptions",
    "hash_order",
    "intervention_gate",
    "plan_bundles",
]
