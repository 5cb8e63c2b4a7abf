"""The launchers of a job on several machines: how they find machine 0, who belongs to the job, and who decides."""
