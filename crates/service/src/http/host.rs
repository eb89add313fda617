//! Which hosts this listener answers for.
//!
//! A page of any site can make a browser resolve that site's name to 127.0.0.1 and call us; the browser then sends the site's
//! name as `Host`. The listener is bound to loopback, so only loopback names are ours.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;

use super::context::single;
use super::problem::{Code, Problem};

/// Refuses a request for a foreign host (421), or without one (400, RFC 9112).
pub(super) fn check(request: &Request) -> Result<(), Problem> {
    let host = single(request.headers(), &header::HOST)?
        .ok_or_else(|| Problem::malformed("the Host header is missing"))?;
    let in_target = request.uri().authority().map(Authority::as_str);
    if is_loopback(host) && in_target.is_none_or(is_loopback) {
        Ok(())
    } else {
        Err(Problem::new(Code::MisdirectedRequest, "this listener answers for localhost only"))
    }
}

/// `localhost` or a loopback address, with any port: port forwarding changes it.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let rest = authority.as_str().strip_prefix(name);
    if rest != Some("") && (rest.is_none() || authority.port_u16().is_none()) {
        return false;
    }
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(target: &str, host: Option<&str>) -> Result<(), Code> {
        let mut request = Request::builder().uri(target);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        check(&request.body(axum::body::Body::empty()).unwrap()).map_err(|problem| problem.code())
    }

    #[test]
    fn both_places_of_a_host_are_looked_at() {
        assert_eq!(checked("/", Some("localhost")), Ok(()));
        assert_eq!(checked("http://127.0.0.1:1/", Some("localhost")), Ok(()));
        assert_eq!(checked("http://example.com/", Some("localhost")), Err(Code::MisdirectedRequest));
        assert_eq!(checked("/", Some("example.com")), Err(Code::MisdirectedRequest));
        assert_eq!(checked("/", None), Err(Code::MalformedRequest));
    }

    #[test]
    fn loopback_is_ours_and_nothing_else() {
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "[::1]:1", "127.1.2.3"] {
            assert!(is_loopback(own), "{own}");
        }
        for foreign in [
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com:80",
            "192.0.2.1",
            "[2001:db8::1]",
            "user@localhost",
            "",
            "localhost:port",
            "0.0.0.0",
        ] {
            assert!(!is_loopback(foreign), "{foreign}");
        }
    }
}
