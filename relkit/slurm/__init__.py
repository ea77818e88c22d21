"""Jobs for Slurm: the script that sbatch gets."""
