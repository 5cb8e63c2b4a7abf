"""Which machine of a job this is, in the words that users bring: a list of addresses, a rank table, SLURM's variables,
LiBai's. No torch: a dry run asks too.
"""
