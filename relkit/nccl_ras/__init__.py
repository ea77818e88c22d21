"""NCCL's own view of a running job: its RAS subsystem, which answers on every host of the job."""
