"""The gateway to Slurm: slurmrestd spoken to over HTTP or a unix socket, as the right user.

    build      settings values → a Gateway
    gateway    the room's face: ping, submit, job, states, cancel …, in the project's own models
    commands   its half that gives orders: cancel, signal, update …
    negotiate  which API version both sides have
    bindings/  one API version each: JobSpec → request, answer → model
    answers    what an HTTP answer means in our error tree
    tokens     where a user's token comes from
    session    one small bounded pool of kept-alive connections

Other rooms import `slurm.base` (the protocol) and `slurm.build`; nothing else of this one.
"""
