// The compiled half of Boost.Asio and Boost.Beast. All other files see declarations only, which halves their build
// time.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
