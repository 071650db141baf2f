// What pack/vector_panels.cl makes next are blocked/blocked.cl's panels of B, VECTORS * WIDTH columns each: pack_panels_b.
// The work-group that packs a block of them reads it: they are near.
#undef PANEL
#undef PIECE
#undef TURN
#undef WRITES
#undef OF
#define PANEL (VECTORS * WIDTH)
#define PIECE PIECE_B
#define TURN TURN_B
#define WRITES 0
#define OF(name) name##_b
#ifndef PIECE_B
#error "PIECE_B: PIECE of pack/vector_panels.cl for panels of B"
#endif
#ifndef TURN_B
#error "TURN_B: TURN of pack/vector_panels.cl for panels of B"
#endif
