//! String formats that Kubernetes validates. Dashes in a format's name are ignored.

use crate::names;
use orlop_regex::Regex;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

fn normalized(format: &str) -> String {
    format.replace('-', "")
}

pub fn is_known_format(format: &str) -> bool {
    KNOWN.contains(&normalized(format).as_str())
}

/// Returns whether a format is validated on values of a type (`""` if the schema has none).
pub fn is_enforced_format(format: &str, kind: &str) -> bool {
    match kind {
        "" | "string" => is_known_format(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Returns whether a text has a format. Unknown formats match every text.
pub fn matches_format(format: &str, text: &str) -> bool {
    match normalized(format).as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => is_ip_sloppy(text) && text.contains('.'),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        // With both of its separators.
        "ssn" => text.len() == 11 && matches(&SSN, text),
        "hexcolor" => matches(&HEX_COLOR, text),
        "rgbcolor" => matches(&RGB_COLOR, text),
        "byte" => matches(&BASE64, text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => {
            text.len() <= names::LABEL_LENGTH_MAX
                && !text.contains('.')
                && names::dns1123_label(text).is_empty()
        }
        "k8slongname" => names::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

type Lazy = LazyLock<Option<Regex>>;

fn matches(pattern: &Lazy, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

macro_rules! pattern {
    ($name:ident, $pattern:literal) => {
        static $name: Lazy =
            LazyLock::new(|| orlop_regex::compile($pattern, orlop_regex::COMPILED_BYTES_MAX).ok());
    };
}

pattern!(SSN, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    RGB_COLOR,
    r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$"
);
pattern!(BASE64, r"^(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})$");
pattern!(
    CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11}|6[27][0-9]{14})$"
);
pattern!(TIME, r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
pattern!(LETTER_OR_SYMBOL, r"^[\p{L}\p{S}]$");
pattern!(LOOSE_DURATION, r"(\d+)\s*([A-Za-zµ]+)");

/// Go's `url.ParseRequestURI`: a path from the root, or anything behind a scheme.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) {
        return false;
    }
    // The query is not validated.
    let (text, _) = text.split_once('?').unwrap_or((text, ""));
    if text.starts_with('/') || text == "*" {
        return valid_escapes(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let starts = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    if !starts || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')) {
        return false;
    }
    match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            is_authority(authority) && valid_escapes(path)
        }
        // After a scheme, anything but a path is opaque.
        None => !rest.starts_with('/') || valid_escapes(rest),
    }
}

/// `user:password@host:port`, each part optional.
fn is_authority(text: &str) -> bool {
    let in_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    let in_host =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    let host = match text.rsplit_once('@') {
        Some((user, _)) if !user.chars().all(in_user) || !valid_escapes(user) => return false,
        Some((_, host)) => host,
        None => text,
    };
    let port = match host.strip_prefix('[') {
        Some(literal) => match literal.rsplit_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let port_is_a_number = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    port_is_a_number && host.chars().all(in_host) && valid_escapes(host)
}

fn valid_escapes(text: &str) -> bool {
    text.match_indices('%').all(|(at, _)| {
        text.as_bytes().get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// `user@host` or `Name <user@host>`.
fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, host)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = host.starts_with('[') && host.ends_with(']');
    (quoted || local.split('.').all(atom)) && (literal || host.split('.').all(atom))
}

/// A single label has at most one dash, as its second character; of several labels, the last has at least two
/// characters. Letters and symbols of any script are allowed: go-openapi's rule, oddities included.
fn is_hostname(text: &str) -> bool {
    let letter =
        |c: char| c.is_ascii_alphanumeric() || matches(&LETTER_OR_SYMBOL, c.encode_utf8(&mut [0; 4]));
    let letters = |text: &str| !text.is_empty() && text.chars().all(letter);
    let fits = text.len() <= 255 && text.split('.').all(|part| part.len() <= 63);
    let well_formed = match text.rsplit_once('.') {
        None => {
            let mut rest = text.chars();
            let begins = rest.next().is_some_and(letter);
            let rest = rest.as_str();
            begins && rest.strip_prefix('-').unwrap_or(rest).chars().all(letter)
        }
        Some((rest, top)) => {
            let outer = |part: &str| part.starts_with(letter) && part.ends_with(letter);
            rest.split('.').all(|part| outer(part) && part.chars().all(|c| letter(c) || c == '-'))
                && top.split('-').all(letters)
                && top.chars().filter(|c| *c != '-').count() >= 2
        }
    };
    fits && well_formed
}

/// As Go before 1.17: leading zeros in IPv4 octets are tolerated.
fn is_ip_sloppy(text: &str) -> bool {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().is_ok();
    }
    let octets: Vec<_> = text.split('.').collect();
    let octet = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse::<u32>().is_ok_and(|octet| octet < 256)
    };
    text.parse::<Ipv4Addr>().is_ok() || (octets.len() == 4 && octets.iter().all(octet))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = if address.contains(':') { 128 } else { 32 };
    is_ip_sloppy(address)
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max)
}

/// 6, 8 or 20 bytes in pairs (`:` or `-`) or in fours (`.`).
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: [usize; 3]| {
        let parts: Vec<_> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts
                .iter()
                .all(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

/// Dashes are optional, one by one.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::with_capacity(32);
    for (place, character) in text.char_indices() {
        match character {
            '-' if matches!(digits.len(), 8 | 12 | 16 | 20) && place > 0 && !text[..place].ends_with('-') => {
            }
            c if c.is_ascii_hexdigit() => digits.push(c),
            _ => return false,
        }
    }
    let at = |index: usize| digits.chars().nth(index).unwrap_or_default().to_ascii_lowercase();
    let variant = !matches!(version, Some('4' | '5')) || matches!(at(16), '8' | '9' | 'a' | 'b');
    digits.len() == 32 && version.is_none_or(|version| at(12) == version) && variant && !text.ends_with('-')
}

fn bare_digits(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\u{c}' | '\r' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = bare_digits(text);
    let value = |(index, c): (usize, char)| match c {
        'X' if index == 9 => Some(10),
        c => c.to_digit(10),
    };
    let digits: Option<Vec<u32>> = text.chars().enumerate().map(value).collect();
    let weighted = |digits: Vec<u32>| {
        digits.iter().zip(1u32..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
    };
    text.len() == 10 && digits.is_some_and(weighted)
}

fn is_isbn13(text: &str) -> bool {
    let text = bare_digits(text);
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10)).collect();
    let weighted = |digits: Vec<u32>| {
        digits
            .iter()
            .enumerate()
            .map(|(index, digit)| digit * if index % 2 == 0 { 1 } else { 3 })
            .sum::<u32>()
            % 10
            == 0
    };
    text.len() == 13 && digits.is_some_and(weighted)
}

/// A card number of a known issuer with a valid check digit; separators are ignored.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let sum = digits.chars().rev().filter_map(|c| c.to_digit(10)).enumerate();
    let sum: u32 = sum.map(|(index, digit)| if index % 2 == 1 { doubled(digit) } else { digit }).sum();
    matches(&CARD, &digits) && sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    crate::time::Time::parse(&format!("{text}T00:00:00Z")).is_some() && text.len() == 10
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    // Anything after a second t is ignored.
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.as_ref().and_then(|pattern| pattern.captures(time)) else { return false };
    let part = |index: usize| found.get(index).map_or("", |part| part.as_str());
    is_date(date) && part(1) <= "23" && part(2) <= "59" && part(3) <= "59"
}

/// Go's durations (`1h2.5s`), and the looser `3 days` of Scala.
fn is_duration(text: &str) -> bool {
    if orlop_duration::parse(text).is_ok() {
        return true;
    }
    const EXACT: [&str; 22] = [
        "ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "m", "min", "h", "hr", "hour", "d",
        "day", "w", "wk", "week", "days", "hours", "weeks",
    ];
    const PREFIXES: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let Some(pattern) = LOOSE_DURATION.as_ref() else { return false };
    pattern.captures_iter(text).any(|found| {
        let unit = found.get(2).map_or("", |unit| unit.as_str()).to_lowercase();
        EXACT.contains(&unit.as_str()) || PREFIXES.iter().any(|prefix| unit.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_valid_and_refuse_invalid_text() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f", "507f1f77bcf86cd79943901g"]),
            (
                "uri",
                &[
                    "http://a.b/c?d",
                    "/path",
                    "mailto:a@b",
                    "mailto:",
                    "urn:%zz",
                    "*",
                    "/a b",
                    "/a?b=%zz",
                    "http://",
                    "http://u:p@a.b:80/",
                    "http://a:/",
                    "http://[::1]:80/",
                    "HTTP://ä.example/",
                    "http://a<b",
                ],
                &[
                    "",
                    "a b",
                    "foo",
                    "a/b",
                    ":a",
                    "1a:b",
                    "http://a b",
                    "http://a/%zz",
                    "http://a:b",
                    "http://a:80b/",
                    "http://[::1/",
                    "http://a|b",
                    "http://u^@a",
                    "/a\tb",
                    "http:/%z",
                ],
            ),
            ("email", &["a@b.c", "A <a@b>"], &["a", "a@", "@b", "a b@c"]),
            (
                "hostname",
                &[
                    "a",
                    "1",
                    "a-b",
                    "a-",
                    "localhost",
                    "example.com",
                    "a-b.example",
                    "a-b-c.d-e-f.example",
                    "1.22",
                    "a.b1",
                    "a.b-c",
                    "ä.example",
                    "\u{1f600}.example",
                    "a+b",
                ],
                &[
                    "", "-a", "a.", ".a", "a_b", "1.2", "a.b", "a.b-", "a-b-c", "my-host", "a..bc", "a.b--c",
                    "a-.bc", "a b", "a.bc.",
                ],
            ),
            (
                "ipv4",
                &["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"],
                &["", "1.2.3", "1.2.3.256", "::1", "1.2.3.4 "],
            ),
            (
                "ipv6",
                &["::1", "2001:db8::1", "::ffff:1.2.3.4"],
                &["", "1.2.3.4", ":::", "fe80::1%eth0", "[::1]"],
            ),
            (
                "cidr",
                &["10.0.0.0/8", "10.1.2.3/08", "::/0", "2001:db8::/128"],
                &["10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1"],
            ),
            (
                "mac",
                &["01:02:03:04:05:06", "01-02-03-04-05-06", "0102.0304.0506"],
                &["01:02", "0g:02:03:04:05:06"],
            ),
            (
                "uuid",
                &["a8098c1a-f86e-11da-bd1a-00112448be1e", "A8098C1AF86E11DABD1A00112448BE1E"],
                &["a8098c1a", "a8098c1a-f86e-11da-bd1a-00112448be1", "a-8098c1af86e11dabd1a00112448be1e"],
            ),
            ("uuid3", &["bcd02e22-68f0-3046-a512-327cca9def8f"], &["bcd02e22-68f0-4046-a512-327cca9def8f"]),
            ("uuid4", &["025b0d74-00a2-4048-bf57-227c5111bb34"], &["025b0d74-00a2-4048-0f57-227c5111bb34"]),
            ("uuid5", &["886313e1-3b8a-5372-9b90-0c9aee199e5d"], &["886313e1-3b8a-4372-9b90-0c9aee199e5d"]),
            ("isbn", &["0321751043", "978-0321751041", "0 321\t75104 3"], &["0321751042", ""]),
            ("isbn10", &["0321751043", "0-8044-2957-X"], &["978-0321751041"]),
            ("isbn13", &["978-0321751041"], &["9780321751042"]),
            ("creditcard", &["4111-1111-1111-1111"], &["4111-1111-1111-1112", "1"]),
            (
                "ssn",
                &["111-11-1111", "111 11 1111"],
                &["11-11-1111", "111111111", "111-111111", "a11-11-1111"],
            ),
            ("hexcolor", &["#FFF", "fff000"], &["#FFFF", "ggg"]),
            ("rgbcolor", &["rgb(100,100,100)"], &["rgb(256,0,0)", "rgb(1,2)"]),
            ("byte", &["aGk=", "aGkh", "+/+/"], &["", "aGk", "a", "-_-_", "aGk=\n", "aG=h"]),
            ("password", &["anything"], &[]),
            ("date", &["2026-02-28"], &["2026-02-30", "26-1-1", "2026-02-28T"]),
            (
                "date-time",
                &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"],
                &["2014-12-15", "2014-12-15T25:00:00Z", "2014-13-15T19:30:20Z"],
            ),
            ("duration", &["1h2m3.5s", "22 ns", "3 days", "0", "-5ms"], &["x", "", "5 parsecs"]),
            ("k8s-short-name", &["abc", "a-1"], &["a.b", "A", "-a"]),
            ("k8s-long-name", &["a.b", "abc"], &["A", "a..b"]),
            ("unknown", &["x"], &[]),
        ];
        for (format, good, bad) in cases {
            for text in *good {
                assert!(matches_format(format, text), "{format}: {text} should be good");
            }
            for text in *bad {
                assert!(!matches_format(format, text), "{format}: {text} should be bad");
            }
        }
        assert!(is_known_format("date-time") && !is_known_format("unknown"));
        for pattern in [&SSN, &HEX_COLOR, &RGB_COLOR, &BASE64, &CARD, &TIME, &LOOSE_DURATION] {
            assert!(pattern.is_some());
        }
    }

    proptest::proptest! {
        #[test]
        fn formats_never_panic(text in ".{0,40}") {
            for format in KNOWN {
                let _ = matches_format(format, &text);
            }
        }
    }
}
