//! Validation that many kinds share, with Kubernetes' error texts.

pub(crate) mod cidr;
pub(crate) mod conditions;
pub(crate) mod ip;

use std::net::{IpAddr, Ipv4Addr};

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    object_meta::IMMUTABLE,
};
use serde_json::Value;

use self::cidr::IpRange;
use crate::{
    accessors::{list, text},
    equality::semantically_equal,
};

pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const LOOPBACK: &str = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PORT_NAME_LENGTH_MAX: usize = 15;
const PORT_MAX: i64 = 65_535;

/// Returns an Invalid error for each problem of a value.
pub(crate) fn invalid_for_each(
    path: &FieldPath,
    value: impl Into<Value>,
    problems: Vec<String>,
) -> Vec<FieldError> {
    let value = value.into();
    problems.into_iter().map(|why| FieldError::invalid(path, value.clone(), why)).collect()
}

/// Validates that a field is at least zero, if present.
pub(crate) fn validate_non_negative(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let number = object.get(field)?.as_i64()?;
    (number < 0).then(|| FieldError::invalid(&path.child(field), number, NOT_NEGATIVE))
}

/// Validates that a field is greater than zero, if present.
pub(crate) fn validate_positive(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let number = object.get(field)?.as_i64()?;
    (number <= 0).then(|| FieldError::invalid(&path.child(field), number, "must be greater than 0"))
}

/// Validates that a string field is not empty.
pub(crate) fn require_text(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let given = object.get(field).and_then(Value::as_str).unwrap_or_default();
    given.is_empty().then(|| FieldError::required(&path.child(field), ""))
}

/// Validates that a string field is one of `allowed`, if present.
pub(crate) fn validate_supported(
    object: &Value,
    field: &str,
    path: &FieldPath,
    allowed: &[&str],
) -> Option<FieldError> {
    let given = object.get(field)?.as_str()?;
    (!allowed.contains(&given)).then(|| FieldError::not_supported(&path.child(field), given, allowed))
}

/// Validates that a string field is present and one of `allowed`.
pub(crate) fn require_supported(
    object: &Value,
    field: &str,
    path: &FieldPath,
    allowed: &[&str],
) -> Option<FieldError> {
    require_text(object, field, path).or_else(|| validate_supported(object, field, path, allowed))
}

/// Validates that a field did not change.
pub(crate) fn validate_immutable(
    new: &Value,
    old: &Value,
    field: &str,
    path: &FieldPath,
) -> Option<FieldError> {
    let (new, old) = (new.get(field).unwrap_or(&Value::Null), old.get(field).unwrap_or(&Value::Null));
    (!semantically_equal(new, old)).then(|| FieldError::invalid(&path.child(field), new.clone(), IMMUTABLE))
}

pub(crate) fn port_number_problems(port: i64) -> Vec<String> {
    if (1..=PORT_MAX).contains(&port) { Vec::new() } else { vec![inclusive_range_message(1, PORT_MAX)] }
}

pub(crate) fn inclusive_range_message(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// Returns the problems of a port name, which is an IANA service name.
pub(crate) fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |holds: bool, why: &str| {
        if !holds {
            problems.push(why.to_owned());
        }
    };
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    require(name.len() <= PORT_NAME_LENGTH_MAX, "must be no more than 15 characters");
    require(
        !name.is_empty() && name.bytes().all(allowed),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    require(name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    require(!name.contains("--"), "must not contain consecutive hyphens");
    let edge = name.starts_with('-') || name.ends_with('-');
    require(name.is_empty() || !edge, "must not begin or end with a hyphen");
    problems
}

/// Validates a port number or name.
pub(crate) fn validate_port_number_or_name(port: Option<&Value>, path: &FieldPath) -> Vec<FieldError> {
    match port {
        Some(Value::String(name)) => invalid_for_each(path, name.as_str(), port_name_problems(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or_default();
            invalid_for_each(path, number, port_number_problems(number))
        }
    }
}

/// Validates an IP address.
pub(crate) fn validate_ip(address: &str, path: &FieldPath) -> Vec<FieldError> {
    match address.parse::<IpAddr>() {
        Ok(_) => Vec::new(),
        Err(_) => {
            vec![FieldError::invalid(
                path,
                address,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )]
        }
    }
}

/// Validates a CIDR range.
pub(crate) fn validate_cidr(range: &str, path: &FieldPath) -> Vec<FieldError> {
    if IpRange::parse(range).is_some() {
        return Vec::new();
    }
    vec![FieldError::invalid(path, range, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")]
}

/// Returns true for a loopback address of the range that nodes of this program give to pods: 127.64.0.0/10. Programs
/// that listen on 127.0.0.1 alone cannot be reached there.
pub fn is_pod_loopback(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 127 && second & 0xc0 == 64
}

fn is_pod_address(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if is_pod_loopback(v4))
}

/// Validates an address that endpoints may have.
pub(crate) fn validate_endpoint_ip(address: &str, path: &FieldPath) -> Vec<FieldError> {
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return vec![FieldError::invalid(path, address, "must be a valid IP address")];
    };
    // An IPv4 address that is written as one of IPv6 is that address.
    let parsed = parsed.to_canonical();
    let (link_local, multicast) = match parsed {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let problems = [
        (parsed.is_unspecified(), format!("may not be unspecified ({address})")),
        (parsed.is_loopback() && !is_pod_address(parsed), LOOPBACK.to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ];
    invalid_for_each(
        path,
        address,
        problems.into_iter().filter(|(holds, _)| *holds).map(|(_, why)| why).collect(),
    )
}

/// Validates a DNS-1123 label.
pub(crate) fn validate_dns_label(name: &str, path: &FieldPath) -> Vec<FieldError> {
    invalid_for_each(path, name, names::dns1123_label(name))
}

/// Validates a DNS-1123 subdomain.
pub(crate) fn validate_dns_subdomain(name: &str, path: &FieldPath) -> Vec<FieldError> {
    invalid_for_each(path, name, names::dns1123_subdomain(name))
}

/// Validates a non-negative count or percentage: `3` or `25%`.
pub(crate) fn validate_int_or_percent(value: &Value, path: &FieldPath) -> Vec<FieldError> {
    match value {
        Value::String(share) if !is_percentage(share) => {
            let message = "a valid percent string must be a numeric string followed by an ending '%'";
            let detail = names::pattern_message(message, "[0-9]+%", &["1%", "93%"]);
            vec![FieldError::invalid(path, share.as_str(), detail)]
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            vec![FieldError::invalid(path, value.clone(), NOT_NEGATIVE)]
        }
        _ => Vec::new(),
    }
}

fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the number of a percentage; `None` for a count.
pub(crate) fn percent_value(value: &Value) -> Option<u64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// Validates that a percentage is at most 100%.
pub(crate) fn validate_at_most_100_percent(value: &Value, path: &FieldPath) -> Option<FieldError> {
    (percent_value(value)? > 100)
        .then(|| FieldError::invalid(path, value.clone(), "must not be greater than 100%"))
}

/// Validates that a field is unique among the items of a list.
pub(crate) fn validate_unique(items: &[Value], field: &str, path: &FieldPath) -> Vec<FieldError> {
    let name = |item: &Value| text(item, &format!("/{field}")).to_owned();
    let names: Vec<String> = items.iter().map(name).collect();
    let repeated = |index: &usize| !names[*index].is_empty() && names[..*index].contains(&names[*index]);
    let errors = (0..names.len()).filter(repeated);
    errors
        .map(|index| FieldError::duplicate(&path.index(index).child(field), names[index].as_str()))
        .collect()
}

/// Validates every item of a list.
pub(crate) fn validate_items(
    object: &Value,
    field: &str,
    path: &FieldPath,
    check: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let path = path.child(field);
    let items = list(object, &format!("/{field}")).iter().enumerate();
    items.flat_map(|(index, item)| check(item, &path.index(index))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Formats errors as clients see them.
    pub(crate) fn messages(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn error_texts_match_kubernetes() {
        let path = FieldPath::root("p");
        assert_eq!(
            messages(validate_port_number_or_name(Some(&json!(0)), &path)),
            ["p: Invalid value: 0: must be between 1 and 65535, inclusive"]
        );
        assert_eq!(
            port_name_problems("Http"),
            ["must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"]
        );
        assert_eq!(port_name_problems("1-2"), ["must contain at least one letter (a-z)"]);
        assert_eq!(
            port_name_problems("-a--b"),
            ["must not contain consecutive hyphens", "must not begin or end with a hyphen"]
        );
        assert_eq!(port_name_problems("averyveryverylongname"), ["must be no more than 15 characters"]);
        assert_eq!(
            messages(validate_ip("x", &path)),
            [r#"p: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#]
        );
        assert_eq!(
            messages(validate_cidr("10.0.0.0/33", &path)),
            [
                r#"p: Invalid value: "10.0.0.0/33": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#
            ]
        );
        assert_eq!(
            messages(validate_endpoint_ip("127.0.0.1", &path)),
            [r#"p: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#]
        );
        for address in ["224.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"] {
            assert_eq!(messages(validate_endpoint_ip(address, &path)).len(), 1, "{address}");
        }
        assert_eq!(
            messages(validate_int_or_percent(&json!("x"), &path)),
            [
                r#"p: Invalid value: "x": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#
            ]
        );
        assert_eq!(
            messages(validate_int_or_percent(&json!(-1), &path)),
            ["p: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            validate_at_most_100_percent(&json!("101%"), &path).unwrap().to_string(),
            r#"p: Invalid value: "101%": must not be greater than 100%"#
        );
        assert_eq!(
            messages(validate_unique(&[json!({"n": "a"}), json!({"n": "a"})], "n", &path)),
            [r#"p[1].n: Duplicate value: "a""#]
        );
    }
}
