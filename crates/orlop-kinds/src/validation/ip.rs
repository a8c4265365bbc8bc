//! Canonical form of IP addresses and CIDR ranges: required by newer fields, a warning for older ones.

use std::net::IpAddr;

use orlop_api::field_error::{FieldError, FieldPath};

use super::cidr::IpRange;
use crate::validation;

/// Returns true if an octet has leading zeros, which some parsers read as octal.
fn has_leading_zeros(text: &str) -> bool {
    let parts = text.split(['.', '/']);
    !text.contains(':') && parts.into_iter().any(|part| part.len() > 1 && part.starts_with('0'))
}

/// Validates an IP address in canonical form.
pub(crate) fn validate_canonical_ip(text: &str, path: &FieldPath) -> Vec<FieldError> {
    let Ok(address) = text.parse::<IpAddr>() else {
        if has_leading_zeros(text) {
            return vec![FieldError::invalid(path, text, "must not have leading 0s")];
        }
        return validation::validate_ip(text, path);
    };
    validate_canonical_form(text, &address.to_string(), path)
}

/// Validates a CIDR range in canonical form.
pub(crate) fn validate_canonical_cidr(text: &str, path: &FieldPath) -> Vec<FieldError> {
    if has_leading_zeros(text) {
        return vec![FieldError::invalid(path, text, "must not have leading 0s in IP or prefix length")];
    }
    let Some(range) = IpRange::parse(text) else { return validation::validate_cidr(text, path) };
    if range.first() != range.address {
        return vec![FieldError::invalid(path, text, "must not have bits set beyond the prefix length")];
    }
    validate_canonical_form(text, &format!("{}/{}", range.address, range.bits), path)
}

/// Validates the address of an interface with its prefix length, in canonical form.
pub(crate) fn validate_interface_address(text: &str, path: &FieldPath) -> Vec<FieldError> {
    // Octets with leading zeros are decimal here.
    let without_zeros = |text: &str| {
        let octet = |octet: &str| match octet.trim_start_matches('0') {
            "" if !octet.is_empty() => "0".to_owned(),
            rest => rest.to_owned(),
        };
        text.split('.').map(octet).collect::<Vec<_>>().join(".")
    };
    let parsed = text.split_once('/').and_then(|(address, bits)| {
        let address = if address.contains(':') { address.to_owned() } else { without_zeros(address) };
        IpRange::parse(&format!("{address}/{bits}"))
    });
    let Some(IpRange { address, bits }) = parsed else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![FieldError::invalid(path, text, detail)];
    };
    let (address, bits) = match address {
        IpAddr::V6(mapped) if mapped.to_ipv4_mapped().is_some() => {
            (address.to_canonical(), if bits > 32 { bits.saturating_sub(96) } else { bits })
        }
        _ => (address, bits),
    };
    validate_canonical_form(text, &format!("{address}/{bits}"), path)
}

fn validate_canonical_form(text: &str, written: &str, path: &FieldPath) -> Vec<FieldError> {
    if text == written {
        return Vec::new();
    }
    vec![FieldError::invalid(path, text, format!("must be in canonical form ({written:?})"))]
}

/// Returns the warning for an address that is not in canonical form.
pub(crate) fn ip_warning(text: &str, path: &str) -> Option<String> {
    let address = text.parse::<IpAddr>().ok().filter(IpAddr::is_ipv6)?.to_string();
    (address != text).then(|| {
        format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({address:?})")
    })
}

/// Returns the warning for a range that is not in canonical form.
pub(crate) fn cidr_warning(text: &str, path: &str) -> Option<String> {
    let range = IpRange::parse(text).filter(|_| !has_leading_zeros(text))?;
    let (first, all, IpRange { address, bits }) = (range.first(), range.width(), range);
    if first != address {
        return Some(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{first}/{bits}\" or \
             \"{address}/{all}\"?)"
        ));
    }
    let written = format!("{address}/{bits}");
    (address.is_ipv6() && written != text).then(|| {
        format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({written:?})")
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::messages, *};

    #[test]
    fn non_canonical_addresses_and_ranges_are_invalid() {
        let path = FieldPath::root("p");
        for (text, why) in [
            ("192.168.1.01", "must not have leading 0s"),
            ("2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
            ("x", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ] {
            assert_eq!(
                messages(validate_canonical_ip(text, &path)),
                [format!("p: Invalid value: {text:?}: {why}")]
            );
        }
        for (text, why) in [
            ("10.0.0.1/24", "must not have bits set beyond the prefix length"),
            ("010.0.0.0/24", "must not have leading 0s in IP or prefix length"),
            ("fd00:0::/112", "must be in canonical form (\"fd00::/112\")"),
            ("10.0.0.0/33", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ] {
            assert_eq!(
                messages(validate_canonical_cidr(text, &path)),
                [format!("p: Invalid value: {text:?}: {why}")]
            );
        }
        assert!(
            validate_canonical_cidr("0.0.0.0/0", &path).is_empty()
                && validate_canonical_ip("::1", &path).is_empty()
        );
    }

    #[test]
    fn non_canonical_addresses_and_ranges_warn() {
        assert_eq!(
            cidr_warning("10.0.0.1/8", "r").unwrap(),
            "r: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
        );
        assert_eq!(
            cidr_warning("2001:DB8::/32", "r").unwrap(),
            "r: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")"
        );
        assert_eq!(
            ip_warning("2001:0db8::1", "a").unwrap(),
            "a: IPv6 address \"2001:0db8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"
        );
        assert_eq!((ip_warning("10.0.0.1", "a"), cidr_warning("10.0.0.0/8", "r")), (None, None));
    }
}
