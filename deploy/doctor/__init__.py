"""`speedtier doctor`: does this prefill server hand state to this decode node, and if not, why."""

from deploy.doctor.check import Check
from deploy.doctor.config import DoctorConfig
from deploy.doctor.doctor import doctor, examine
from deploy.doctor.errors import NotWell

__all__ = ["Check", "DoctorConfig", "NotWell", "doctor", "examine"]
