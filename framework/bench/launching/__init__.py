"""A sweep in several jobs, through any launcher of Hydra: a machine's cores, a cluster, a queue."""
