"""``python -m clgemm bench``: a timed comparison of clgemm with BLAS libraries.

Each contender runs in its own process, and the contenders take turns. The threads of a host's BLAS
spin after a call and would slow a contender in the same process. The other processes wait on their
pipes while one is timed. Every result is checked.

    cases       the products: shapes and layouts, random matrices, the check of a result
    contenders  clgemm and its peers, each as a call to be timed
    host_blas_peers
                the host's BLAS libraries besides NumPy's own
    worker      the child process of one contender
    peak        the device's measured arithmetic peak and memory bandwidth
    rounds      the turns of the contenders, case by case, and what they took
    report      the tables and the JSON
    plot        the picture
    command     the command line

Each of these runs something else instead, by an option of the command:

    survey      random products (`draws`), with statistics of the ratios and the worst products
    whole_programs
                programs in plain NumPy (`corpus`), with and without acceleration
    other_products
                integers, booleans and float16; a matrix by its own transpose
    startup     new processes until their first product, and tiny calls
"""
