"""Why a job took its time: roles of ranks, matched collectives, gaps, and predictions by simulation."""
