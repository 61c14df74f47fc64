// RESTRICT=0 builds a kernel without the promise that its matrices don't overlap; nothing else
// changes.
#pragma once

#ifndef RESTRICT
#define RESTRICT 1
#endif

#if RESTRICT
#define MAYBE_RESTRICT __restrict__
#else
#define MAYBE_RESTRICT
#endif
