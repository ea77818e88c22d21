"""All ranks of a job as arrays, so that a look over a large job costs no Python object a rank."""
