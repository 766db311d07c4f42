"""What happened in the job: iterations, buckets, collectives, from its marks."""
