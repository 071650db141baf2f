"""``python -m clgemm bench``: a timed comparison of clgemm with NumPy, CLBlast and cuBLAS.

Each contender runs in its own process, and the contenders take turns. The threads of a host's BLAS
spin after a call and would slow a contender in the same process. The other processes wait on their
pipes while one is timed. Every result is checked.

    cases       the products: shapes, layouts and batches
    figures     medians, ratios and spreads, and the outcome of one contender
    operands    random matrices, the float64 reference and the check of a result
    contenders  clgemm, NumPy, CLBlast and cuBLAS, each as a call to be timed
    worker      the child process of one contender
    pipe        the parent's side of a worker
    rounds      the turns of the contenders, case by case
    peak        the device's measured arithmetic peak and memory bandwidth
    startup     a new process's first call, and the overhead of a tiny call
    report      the tables and the JSON
    plot        the roofline and the ratios as a picture
    command     the command line
"""
