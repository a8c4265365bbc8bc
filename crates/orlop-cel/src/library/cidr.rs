//! Networks in CIDR notation.

use orlop_regex::go_quote::quote;
use std::fmt;
use std::net::IpAddr;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::address;
use crate::library::ip;
use crate::library::opaque::{CIDR, IP, Opaque};
use crate::types::Type;
use crate::value::Value;

/// An address with the length of its network prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    pub(crate) bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

pub(crate) fn declare(f: &mut Functions) {
    f.global("cidr", "string_to_cidr", [Type::String], CIDR, |_, args| match args {
        [Value::String(text)] => parse(text).map(value),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("isCIDR", "is_cidr", [Type::String], Type::Bool, |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("string", "cidr_to_string", [CIDR], Type::String, |_, args| {
        one(args).map(|cidr| Value::string(cidr.to_string()))
    });
    f.member("containsIP", "cidr_contains_ip_string", [CIDR, Type::String], Type::Bool, contains_ip);
    f.member("containsIP", "cidr_contains_ip_ip", [CIDR, IP], Type::Bool, contains_ip);
    f.member("containsCIDR", "cidr_contains_cidr_string", [CIDR, Type::String], Type::Bool, contains_cidr);
    f.member("containsCIDR", "cidr_contains_cidr", [CIDR, CIDR], Type::Bool, contains_cidr);
    f.member("ip", "cidr_ip", [CIDR], IP, |_, args| one(args).map(|cidr| ip::value(cidr.address)));
    f.member("prefixLength", "cidr_prefix_length", [CIDR], Type::Int, |_, args| {
        one(args).map(|cidr| Value::Int(i64::from(cidr.bits)))
    });
    f.member("masked", "cidr_masked", [CIDR], CIDR, |_, args| one(args).map(|cidr| value(cidr.masked())));
}

fn value<'a>(cidr: Cidr) -> Value<'a> {
    Value::Opaque(Opaque::Cidr(cidr))
}

fn one(args: &[Value<'_>]) -> Result<Cidr, EvalError> {
    match args {
        [Value::Opaque(Opaque::Cidr(cidr))] => Ok(*cidr),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn contains_ip<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (cidr, address) = match args {
        [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Ip(address))] => (cidr, *address),
        // Kubernetes does not say what is wrong with the address, only that it is none.
        [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)] => {
            (cidr, ip::parse(text).map_err(|_| EvalError::no_such_overload())?)
        }
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Bool(cidr.contains(address)))
}

fn contains_cidr<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let (cidr, other) = match args {
        [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Cidr(other))] => (cidr, *other),
        [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)] => (cidr, parse(text)?),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Bool(cidr.bits <= other.bits && cidr.contains(other.address)))
}

fn parse(text: &str) -> Result<Cidr, EvalError> {
    let context = "network address parse error during conversion from string";
    let problem = |reason: &str| {
        EvalError::Failed(format!(
            "{context}: {context}: netip.ParsePrefix({text}): {reason}",
            text = quote(text)
        ))
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| problem("no '/'"))?;
    let (address, zone) = address::parse(address).map_err(|reason| problem(&reason))?;
    if !zone.is_empty() {
        return Err(problem("IPv6 zones cannot be present in a prefix"));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let plain = bits == "0" || (!bits.starts_with('0') && bits.bytes().all(|b| b.is_ascii_digit()));
    let bits: i64 = bits
        .parse()
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| problem(&format!("bad bits after slash: {bits}", bits = quote(bits))))?;
    let bits = u8::try_from(bits).ok().filter(|bits| *bits <= most);
    let bits = bits.ok_or_else(|| problem("prefix length out of range"))?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            let reason = format!("IPv4-mapped IPv6 address {text} is not allowed", text = quote(text));
            Err(EvalError::Failed(format!("{context}: {reason}")))
        }
        address => Ok(Cidr { address, bits }),
    }
}

impl Cidr {
    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.masked().address == mask(address, self.bits)
    }

    fn masked(self) -> Self {
        Self { address: mask(self.address, self.bits), bits: self.bits }
    }
}

/// The address with all bits beyond the prefix cleared.
fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}
