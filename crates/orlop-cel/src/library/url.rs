//! URLs, absolute or beginning with a slash.
//!
//! Parsing follows Go's `url`, whose notion of a URL is the one Kubernetes has: lenient about what is in a path, strict
//! about hosts, ports and percent escapes. A URL must be one as the target of a request, where `#` begins no fragment,
//! and is then read as a reference, where it does and `//` begins a host.

use orlop_regex::go_quote::quote;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::opaque::{Opaque, URL};
use crate::types::Type;
use crate::value::{Key, Map, Text, Value};

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    /// Opaque part after the scheme: `mailto:someone`.
    opaque: String,
    host: String,
    raw_path: String,
    query: String,
    /// A question mark with nothing behind it.
    empty_query: bool,
    fragment: String,
    user: String,
}

pub(crate) fn declare(f: &mut Functions) {
    f.global("url", "string_to_url", [Type::String], URL, |_, args| match args {
        [Value::String(text)] => match check(text).and_then(|()| parse(text, Form::Reference)) {
            Ok(url) => Ok(Value::Opaque(Opaque::Url(Arc::new(url)))),
            Err(reason) => {
                Err(EvalError::Failed(format!("URL parse error during conversion from string: {reason}")))
            }
        },
        _ => Err(EvalError::no_such_overload()),
    });
    f.global("isURL", "is_url_string", [Type::String], Type::Bool, |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(check(text).is_ok())),
        _ => Err(EvalError::no_such_overload()),
    });
    let text = || Type::String;
    f.member("getScheme", "url_get_scheme", [URL], text(), |_, args| read(args, |url| url.scheme.clone()));
    f.member("getHost", "url_get_host", [URL], text(), |_, args| read(args, |url| url.host.clone()));
    f.member("getHostname", "url_get_hostname", [URL], text(), |_, args| {
        read(args, |url| host_and_port(&url.host).0.trim_matches(['[', ']']).to_owned())
    });
    f.member("getPort", "url_get_port", [URL], text(), |_, args| {
        read(args, |url| host_and_port(&url.host).1.to_owned())
    });
    f.member("getEscapedPath", "url_get_escaped_path", [URL], text(), |_, args| {
        read(args, Url::escaped_path)
    });
    f.member("getQuery", "url_get_query", [URL], Type::map(text(), Type::list(text())), query);
}

fn read<'a>(args: &[Value<'a>], read: fn(&Url) -> String) -> EvalResult<'a> {
    match args {
        [Value::Opaque(Opaque::Url(url))] => Ok(Value::String(Text::from(read(url)))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn query<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Url(url))] = args else { return Err(EvalError::no_such_overload()) };
    let mut values: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Invalid escapes are omitted.
        let plus = |text: &str| unescape(&text.replace('+', " "));
        if let (Some(key), Some(value)) = (plus(key), plus(value)) {
            values.entry(key).or_default().push(Value::string(value));
        }
    }
    let entries = values.into_iter().map(|(key, values)| (Key::String(Text::from(key)), Value::list(values)));
    Ok(Value::Map(Map::from(entries.collect::<BTreeMap<_, _>>())))
}

impl Url {
    /// The path as it was written if it was escaped properly, else escaped anew.
    fn escaped_path(&self) -> String {
        let proper = |b: u8| is_unreserved(b) || b"!$&'()*+,;=:@[]%/".contains(&b);
        if self.raw_path.bytes().all(proper) {
            return self.raw_path.clone();
        }
        let decoded = unescape(&self.raw_path).unwrap_or_default();
        let mut escaped = String::with_capacity(decoded.len() + 8);
        for b in decoded.bytes() {
            if is_unreserved(b) || b"$&+,/:;=@".contains(&b) {
                escaped.push(char::from(b));
            } else {
                escaped.push_str(&format!("%{b:02X}"));
            }
        }
        escaped
    }
}

fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~".contains(&b)
}

/// Decodes percent escapes; `None` if one is malformed or the result is not text.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `host:port` in its parts; the port is empty if there is none.
fn host_and_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        // A colon inside brackets belongs to the address.
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, ""),
    }
}

/// Kind of URL reference to parse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The target of a request.
    Target,
    /// A reference, as in a document.
    Reference,
}

/// Validates a URL. The error text is Go's.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text, Form::Target).map(drop)
}

fn parse(text: &str, form: Form) -> Result<Url, String> {
    try_parse(text, form).map_err(|reason| format!("parse {text}: {reason}", text = quote(text)))
}

fn try_parse(text: &str, form: Form) -> Result<Url, String> {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let (text, fragment) = match text.split_once('#') {
        Some(parts) if form == Form::Reference => parts,
        _ => (text, ""),
    };
    if let Some(bad) = bad_escape(fragment) {
        return Err(bad);
    }
    let (scheme, rest) = if text == "*" { ("", text) } else { split_scheme(text)? };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme: scheme.to_ascii_lowercase(),
        opaque: String::new(),
        host: String::new(),
        raw_path: String::new(),
        query: query.to_owned(),
        empty_query: query.is_empty() && text.ends_with('?'),
        fragment: fragment.to_owned(),
        user: String::new(),
    };
    if !rest.starts_with('/') && text != "*" {
        if scheme.is_empty() && form == Form::Target {
            return Err("invalid URI for request".to_owned());
        }
        if !scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
    }
    let mut path = rest;
    let has_host = !scheme.is_empty() || (form == Form::Reference && !rest.starts_with("///"));
    if let (true, Some(authority)) = (has_host, rest.strip_prefix("//")) {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, after) = authority.split_at(end);
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        url.host = checked_host(host)?;
        url.user = checked_user(user)?;
        path = after;
    }
    if let Some(bad) = bad_escape(path) {
        return Err(bad);
    }
    url.raw_path = path.to_owned();
    Ok(url)
}

/// `scheme:` if there is one.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn checked_host(host: &str) -> Result<String, String> {
    let port = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.rsplit_once(']') {
            Some((_, port)) => port,
            None => return Err("missing ']' in host".to_owned()),
        },
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let is_port = port.strip_prefix(':').is_none_or(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !is_port || !(port.is_empty() || port.starts_with(':')) {
        return Err(format!("invalid port {port} after host", port = quote(port)));
    }
    let allowed = |b: u8| is_unreserved(b) || b >= 0x80 || b"!$&'()*+,;=:[]<>\"%".contains(&b);
    if let Some(bad) = host.bytes().find(|b| !allowed(*b)) {
        return Err(format!("invalid character {} in host name", quote(&char::from(bad).to_string())));
    }
    // Of what could be written plainly, only the percent sign itself may be escaped.
    let is_plain = |rest: &&str| matches!(rest.as_bytes(), [_, b'0'..=b'7', ..]) && !rest.starts_with("%25");
    let plain = host.match_indices('%').map(|(at, _)| &host[at..]).find(is_plain);
    match bad_escape(host).or(plain.map(invalid_escape)) {
        Some(bad) => Err(bad),
        None => Ok(unescape(host).unwrap_or_default()),
    }
}

fn checked_user(user: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !user.bytes().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user).ok_or_else(|| bad_escape(user).unwrap_or_default())
}

/// Returns the error of the first invalid percent escape, if any.
fn bad_escape(text: &str) -> Option<String> {
    let is_bad = |rest: &&str| !matches!(rest.as_bytes(), [_, one, two, ..] if one.is_ascii_hexdigit() && two.is_ascii_hexdigit());
    text.match_indices('%').map(|(at, _)| &text[at..]).find(is_bad).map(invalid_escape)
}

fn invalid_escape(rest: &str) -> String {
    format!("invalid URL escape {}", quote(&rest.chars().take(3).collect::<String>()))
}
