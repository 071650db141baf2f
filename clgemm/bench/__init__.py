"""``python -m clgemm bench``: a timed comparison of clgemm with BLAS libraries.

Each contender runs in its own process, and the contenders take turns. The threads of a host's BLAS
spin after a call and would slow a contender in the same process. The other processes wait on their
pipes while one is timed. Every result is checked.

    cases       the products: shapes, layouts and batches
    figures     medians, ratios and spreads, and the outcome of one contender
    operands    random matrices, the float64 reference and the check of a result
    contenders  clgemm and its peers, each as a call to be timed
    host_blas_peers
                the host's BLAS libraries besides NumPy's own
    worker      the child process of one contender
    pipe        the parent's side of a worker
    rounds      the turns of the contenders, case by case
    peak        the device's measured arithmetic peak and memory bandwidth
    startup     a new process's first call, and the overhead of a tiny call
    report      the tables and the JSON
    plot        the roofline and the ratios as a picture
    survey      the random products of a survey, and their statistics
    plans       the plan of a product in words
    survey_report, survey_plot, survey_command
                the tables, the pictures and the options of a survey
    command     the command line
"""
