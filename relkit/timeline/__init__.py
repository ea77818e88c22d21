"""What the ranks of a job did, side by side on one clock: recorded, merged, compared."""
