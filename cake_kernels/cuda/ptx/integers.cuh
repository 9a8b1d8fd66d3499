// Fixed-width integers; NVRTC brings no <cstdint>.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;
