//! IP addresses, parsed as Go's `netip` does, with its error texts.

use orlop_regex::go_quote::quote;
use std::net::{IpAddr, Ipv6Addr};

/// The address and its zone, which is empty if there is none.
pub(super) fn parse(text: &str) -> Result<(IpAddr, &str), String> {
    let problem = |(reason, at): Problem<'_>| match at {
        "" => format!("ParseAddr({text}): {reason}", text = quote(text)),
        at => format!("ParseAddr({text}): {reason} (at {at})", text = quote(text), at = quote(at)),
    };
    match text.bytes().find(|b| b".:%".contains(b)) {
        Some(b'.') => v4(text).map(|octets| (octets.into(), "")).map_err(problem),
        Some(b':') => {
            let (address, zone) = match text.split_once('%') {
                Some((_, "")) => return Err(problem(("zone must be a non-empty string", ""))),
                Some(split) => split,
                None => (text, ""),
            };
            v6(address).map(|address| (address.into(), zone)).map_err(problem)
        }
        Some(_) => Err(problem(("missing IPv6 address", ""))),
        None => Err(problem(("unable to parse IP", ""))),
    }
}

/// Error, and the remaining text at its position.
type Problem<'t> = (&'static str, &'t str);

fn v4(text: &str) -> Result<[u8; 4], Problem<'_>> {
    let mut octets = [0; 4];
    let (mut place, mut value, mut digits) = (0, 0_u16, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' if digits == 1 && value == 0 => {
                return Err(("IPv4 field has octet with leading zero", ""));
            }
            b'0'..=b'9' => {
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                octets[place] = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", ""))?;
            }
            b'.' if digits == 0 || at + 1 == text.len() => {
                return Err(("IPv4 field must have at least one digit", &text[at..]));
            }
            b'.' if place == 3 => return Err(("IPv4 address too long", "")),
            b'.' => (place, value, digits) = (place + 1, 0, 0),
            _ => return Err(("unexpected character", &text[at..])),
        }
    }
    if place < 3 { Err(("IPv4 address too short", "")) } else { Ok(octets) }
}

fn v6(text: &str) -> Result<Ipv6Addr, Problem<'_>> {
    let mut groups: Vec<u16> = Vec::with_capacity(8);
    // Position of `::`.
    let mut gap = None;
    let mut rest = text;
    if let Some(after) = rest.strip_prefix("::") {
        (gap, rest) = (Some(0), after);
    }
    while groups.len() < 8 && !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (group, after) = rest.split_at(digits);
        if digits > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        if after.starts_with('.') {
            if gap.is_none() && groups.len() != 6 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if groups.len() > 6 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            let [a, b, c, d] = v4(rest)?;
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            rest = "";
            break;
        }
        groups.push(u16::from_str_radix(group, 16).unwrap_or_default());
        let Some(next) = after.strip_prefix(':') else {
            if after.is_empty() {
                rest = "";
                break;
            }
            return Err(("unexpected character, want colon", after));
        };
        if next.is_empty() {
            return Err(("colon must be followed by more characters", after));
        }
        rest = next;
        if let Some(after) = next.strip_prefix(':') {
            if gap.is_some() {
                return Err(("multiple :: in address", next));
            }
            (gap, rest) = (Some(groups.len()), after);
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    let missing = 8 - groups.len();
    match gap {
        Some(_) if missing == 0 => return Err(("the :: must expand to at least one field of zeros", "")),
        Some(gap) => drop(groups.splice(gap..gap, std::iter::repeat_n(0, missing))),
        None if missing > 0 => return Err(("address string too short", "")),
        None => {}
    }
    let groups: [u16; 8] = groups.try_into().map_err(|_| ("address string too short", ""))?;
    Ok(groups.into())
}
