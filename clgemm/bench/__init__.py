"""``python -m clgemm bench``: a timed comparison of clgemm with BLAS libraries.

Each contender runs in its own process, and the contenders take turns. The threads of a host's BLAS
spin after a call and would slow a contender in the same process. The other processes wait on their
pipes while one is timed. Every result is checked.

    cases       the products: named or drawn at random, matrices, the check of a result
    contenders  clgemm and its peers, each as a call to be timed
    rounds      the turns of the contenders, case by case, and the process of each
    peak        the device's measured arithmetic peak and memory bandwidth
    report      the tables, the JSON and the picture
    command     the command line

Each of these runs something else instead, by an option of the command:

    survey      random products, with statistics of the ratios and the worst products
    programs    new processes until their first product, and tiny calls; programs in plain NumPy
                (`corpus`), with and without acceleration
    other_products
                integers, booleans and float16; a matrix by its own transpose
"""
