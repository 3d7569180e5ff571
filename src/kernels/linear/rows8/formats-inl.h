// Dispatch from a run-time format to its Unpack struct. Included inside a target region, after the instruction set's
// UnpackQ8_0 etc.
#pragma once

// Calls visit(UnpackX()) for the format.
template <class Visit>
inline void with_format(DType format, Visit visit) {
  switch (format) {
    case DType::Q8_0:
    case DType::F8_E4M3:  // packed as Q8_0
      return visit(UnpackQ8_0());
    case DType::Q4_0:
      return visit(UnpackQ4_0());
    case DType::Q4_1:
      return visit(UnpackQ4_1());
    case DType::Q5_0:
      return visit(UnpackQ5_0());
    case DType::Q5_1:
      return visit(UnpackQ5_1());
    case DType::Q2_K:
      return visit(UnpackQ2_K());
    case DType::Q3_K:
      return visit(UnpackQ3_K());
    case DType::Q4_K:
      return visit(UnpackQ4_K());
    case DType::Q5_K:
      return visit(UnpackQ5_K());
    case DType::Q6_K:
      return visit(UnpackQ6_K());
    case DType::IQ4_NL:
      return visit(UnpackIQ4_NL());
    case DType::IQ4_XS:
      return visit(UnpackIQ4_XS());
    case DType::MXFP4:
      return visit(UnpackMXFP4());
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  assertion_failed("a packed format", __FILE__, __LINE__);
}
