"""Pure translation: pod → JobSpec and PodPlan, job and runner records → pod status. No I/O."""
