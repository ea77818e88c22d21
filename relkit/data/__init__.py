"""Token data sets: Megatron's .bin/.idx pairs, read, written, merged, checked and made from text.

Nothing in here imports torch: a data set is prepared on machines that have none.
"""
