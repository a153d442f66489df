"""Timeline: when each job was reached, began and ended, in each epoch of a run.

Invariant: reached <= began <= ended for every job, and jobs of one queue do not overlap.
"""

from persistent_engine.simulate.program import Program

__all__ = ["NOBODY", "Timeline"]

NOBODY = -1
"""No job: what came before in the same queue is what a job began after."""


class Timeline:
    """Times in seconds by epoch (from 1) and job number. steps: when the leader finished each epoch.

    after[epoch][job]: the job whose signal it began after, NOBODY where that was its own queue.
    """

    def __init__(self, program: Program, epochs: int) -> None:
        jobs = len(program.jobs)
        self.program, self.epochs = program, epochs
        self.steps: list[float] = []
        self.reach = [[0.0] * jobs for _ in range(epochs)]
        self.begin = [[0.0] * jobs for _ in range(epochs)]
        self.finish = [[0.0] * jobs for _ in range(epochs)]
        self.after = [[NOBODY] * jobs for _ in range(epochs)]

    def reached(self, epoch: int, job: int, time: float) -> None:
        """The worker came to the job and looked at its waits."""
        self.reach[epoch - 1][job] = time

    def began(self, epoch: int, job: int, time: float, after: int) -> None:
        """All waits held and were seen to."""
        self.begin[epoch - 1][job] = time
        self.after[epoch - 1][job] = after

    def ended(self, epoch: int, job: int, time: float) -> None:
        """Its last tile was done."""
        self.finish[epoch - 1][job] = time

    @property
    def step_s(self) -> float:
        """Seconds a step takes, over all epochs after the first."""
        return (self.steps[-1] - self.steps[0]) / (self.epochs - 1)
