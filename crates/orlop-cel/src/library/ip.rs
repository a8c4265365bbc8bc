//! IP addresses.

use orlop_regex::go_quote::quote;
use std::net::IpAddr;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::address;
use crate::library::opaque::{IP, Opaque};
use crate::types::Type;
use crate::value::Value;

pub(crate) fn declare(f: &mut Functions) {
    f.global("ip", "string_to_ip", [Type::String], IP, |_, args| text(args, parse).map(value));
    f.global("isIP", "is_ip", [Type::String], Type::Bool, |_, args| {
        text(args, |text| Ok(Value::Bool(parse(text).is_ok())))
    });
    f.global("ip.isCanonical", "ip_is_canonical", [Type::String], Type::Bool, |_, args| {
        text(args, |text| Ok(Value::Bool(parse(text)?.to_string() == text)))
    });
    f.global("string", "ip_to_string", [IP], Type::String, |_, args| {
        one(args).map(|address| Value::string(address.to_string()))
    });
    f.member("family", "ip_family", [IP], Type::Int, family);
    f.member("isUnspecified", "ip_is_unspecified", [IP], Type::Bool, |_, args| {
        test(args, IpAddr::is_unspecified)
    });
    f.member("isLoopback", "ip_is_loopback", [IP], Type::Bool, |_, args| test(args, IpAddr::is_loopback));
    f.member("isLinkLocalMulticast", "ip_is_link_local_multicast", [IP], Type::Bool, |_, args| {
        test(args, is_link_local_multicast)
    });
    f.member("isLinkLocalUnicast", "ip_is_link_local_unicast", [IP], Type::Bool, |_, args| {
        test(args, is_link_local_unicast)
    });
    f.member("isGlobalUnicast", "ip_is_global_unicast", [IP], Type::Bool, |_, args| {
        test(args, is_global_unicast)
    });
}

pub(crate) fn value<'a>(address: IpAddr) -> Value<'a> {
    Value::Opaque(Opaque::Ip(address))
}

fn text<'s, T>(args: &'s [Value<'_>], use_text: fn(&'s str) -> Result<T, EvalError>) -> Result<T, EvalError> {
    match args {
        [Value::String(text)] => use_text(text),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn one(args: &[Value<'_>]) -> Result<IpAddr, EvalError> {
    match args {
        [Value::Opaque(Opaque::Ip(address))] => Ok(*address),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn test<'a>(args: &[Value<'a>], test: fn(&IpAddr) -> bool) -> EvalResult<'a> {
    one(args).map(|address| Value::Bool(test(&address)))
}

fn family<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    one(args).map(|address| Value::Int(if address.is_ipv4() { 4 } else { 6 }))
}

/// Parses an address; zones and IPv4 in IPv6 are not allowed.
pub(crate) fn parse(text: &str) -> Result<IpAddr, EvalError> {
    let (address, zone) = address::parse(text).map_err(|reason| {
        EvalError::Failed(format!(
            "IP Address {text} parse error during conversion from string: {reason}",
            text = quote(text)
        ))
    })?;
    if !zone.is_empty() {
        return Err(EvalError::Failed(format!(
            "IP address {text} with zone value is not allowed",
            text = quote(text)
        )));
    }
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(EvalError::Failed(format!(
            "IPv4-mapped IPv6 address {text} is not allowed",
            text = quote(text)
        ))),
        address => Ok(address),
    }
}

fn is_link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !is_broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
