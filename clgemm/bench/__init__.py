"""``python -m clgemm bench``: clgemm against its peers in one run, every result checked.

Each contender lives in a process of its own and they take turns, because the workers of a host's
BLAS go on spinning after a call and would slow whoever computes beside them. While one is timed
the others are blocked on reading their pipes.

    cases       what is multiplied: shapes, layouts, stacks. Pure, as is the next
    figures     medians, ratios and spreads; one contender's turns
    operands    random matrices, the float64 reference, how a result is judged: pure NumPy
    contenders  clgemm, NumPy, CLBlast and cuBLAS, each as a call that can be timed
    worker      a child process that serves one contender
    pipe        the parent's end of it
    rounds      the turns, case by case
    identity    the same device in each process
    peak        the device's measured arithmetic peak and memory bandwidth
    startup     a new process's first call; the cost of a tiny call
    report, plot, command
"""
