//! Headers for browsers and load balancers: HSTS, CORS, GOAWAY.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header, request::Parts,
};
use orlop_regex::Regex;
use tokio::sync::Notify;

use crate::http::body::Body;

/// Bytes that a compiled pattern of origins may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Greatest fraction of requests after which a connection is told to go away.
const GOAWAY_CHANCE_MAX: f64 = 0.02;

const CORS: [(HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, \
         If-Modified-Since",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

/// Settings of a server for browsers and load balancers. The default sets nothing.
#[derive(Debug, Default)]
pub struct Hygiene {
    strict_transport_security: Option<HeaderValue>,
    allowed_origins: Vec<Regex>,
    goaway_chance: f64,
}

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadHygiene(String);

impl Hygiene {
    /// Validates settings, in Kubernetes' words.
    pub fn new(hsts: &[String], origins: &[String], goaway_chance: f64) -> Result<Self, BadHygiene> {
        if !(0.0..=GOAWAY_CHANCE_MAX).contains(&goaway_chance) {
            return Err(BadHygiene("--goaway-chance can not be less than 0 or greater than 0.02".to_owned()));
        }
        for directive in hsts {
            let is_age = directive
                .strip_prefix("max-age=")
                .is_some_and(|age| age.bytes().all(|b| b.is_ascii_digit()) && !age.is_empty());
            if directive.trim().is_empty() {
                return Err(BadHygiene("empty value in strict-transport-security-directives".to_owned()));
            }
            if !is_age && directive != "includeSubDomains" && directive != "preload" {
                return Err(BadHygiene(
                    "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, \
                     includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
                        .to_owned(),
                ));
            }
        }
        let allowed_origins =
            origins.iter().map(|pattern| origin_pattern(pattern)).collect::<Result<_, _>>()?;
        let strict_transport_security =
            (!hsts.is_empty()).then(|| HeaderValue::try_from(hsts.join("; ")).ok()).flatten();
        Ok(Self { strict_transport_security, allowed_origins, goaway_chance })
    }

    /// Returns the origin of a request, if it is allowed.
    fn allowed_origin<'a>(&self, request: &'a HeaderMap) -> Option<&'a HeaderValue> {
        if self.allowed_origins.is_empty() {
            return None;
        }
        let origin = request.get(header::ORIGIN)?;
        let text = origin.to_str().ok().filter(|text| !text.is_empty())?;
        self.allowed_origins.iter().any(|pattern| pattern.is_match(text)).then_some(origin)
    }

    /// Answers a preflight request of an allowed origin.
    pub(crate) fn preflight(&self, request: &Parts) -> Option<Response<Body>> {
        if request.method != Method::OPTIONS {
            return None;
        }
        self.allowed_origin(&request.headers)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        self.write_to(&request.headers, response.headers_mut());
        Some(response)
    }

    /// Adds headers to a response.
    pub(crate) fn write_to(&self, request: &HeaderMap, response: &mut HeaderMap) {
        if let Some(value) = &self.strict_transport_security {
            response.insert(header::STRICT_TRANSPORT_SECURITY, value.clone());
        }
        if let Some(origin) = self.allowed_origin(request) {
            response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            for (name, value) in &CORS {
                response.insert(name.clone(), HeaderValue::from_static(value));
            }
        }
    }

    /// Returns true if connections are told to go away at times.
    pub(crate) fn sends_goaway(&self) -> bool {
        self.goaway_chance > 0.0
    }

    /// Tells the connection of a request to go away, by chance. Requests that are open end as they would.
    pub(crate) fn maybe_goaway(&self, request: &Parts, connection: Option<&Notify>) {
        if let Some(connection) = connection
            && request.version == Version::HTTP_2
            && rand::random::<f64>() < self.goaway_chance
        {
            connection.notify_one();
        }
    }
}

/// Compiles a pattern of origins. One that matches in the middle of a host would also allow another's.
fn origin_pattern(pattern: &str) -> Result<Regex, BadHygiene> {
    let refused =
        |why: &str| BadHygiene(format!("--cors-allowed-origins has an invalid regular expression: {why}"));
    if pattern.is_empty() {
        return Err(BadHygiene("empty value in --cors-allowed-origins".to_owned()));
    }
    let compiled = orlop_regex::compile(pattern, PATTERN_BYTES_MAX).map_err(|why| refused(&why))?;
    let pins = |markers: [&str; 2]| markers.iter().any(|marker| pattern.contains(marker));
    if !pins(["^", "//"]) || !pins(["$", ":"]) {
        return Err(refused("regular expression does not pin to start/end of host in the origin header"));
    }
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn hygiene(hsts: &[&str], origins: &[&str], chance: f64) -> Result<Hygiene, BadHygiene> {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Hygiene::new(&owned(hsts), &owned(origins), chance)
    }

    fn request(method: Method, origin: &str) -> Parts {
        Request::builder().method(method).header("origin", origin).body(()).unwrap().into_parts().0
    }

    #[test]
    fn bad_settings_are_refused_in_kubernetes_words() {
        for (hsts, origins, chance, part) in [
            (&["max-age"][..], &[][..], 0.0, "--strict-transport-security-directives invalid"),
            (&["max-age=x"], &[], 0.0, "--strict-transport-security-directives invalid"),
            (&[""], &[], 0.0, "empty value"),
            (&[], &["example.org"], 0.0, "does not pin to start/end of host"),
            (&[], &["^(example.org$"], 0.0, "invalid regular expression"),
            (&[], &[""], 0.0, "empty value in --cors-allowed-origins"),
            (&[], &[], 0.5, "--goaway-chance can not be less than 0 or greater than 0.02"),
            (&[], &[], f64::NAN, "--goaway-chance"),
        ] {
            let refused = hygiene(hsts, origins, chance).unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn allowed_origins_get_headers_and_others_do_not() {
        let hygiene = hygiene(&["max-age=31536000", "preload"], &["//example\\.org(:|$)"], 0.0).unwrap();
        let mut headers = HeaderMap::new();
        hygiene.write_to(&request(Method::GET, "https://example.org:8443").headers, &mut headers);
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://example.org:8443");
        assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert_eq!(headers[header::STRICT_TRANSPORT_SECURITY], "max-age=31536000; preload");
        let mut headers = HeaderMap::new();
        hygiene.write_to(&request(Method::GET, "https://example.org.evil.net").headers, &mut headers);
        assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
        let preflight = hygiene.preflight(&request(Method::OPTIONS, "https://example.org")).unwrap();
        assert_eq!(preflight.status(), 204);
        assert!(hygiene.preflight(&request(Method::OPTIONS, "https://other.org")).is_none());
        assert!(hygiene.preflight(&request(Method::GET, "https://example.org")).is_none());
    }

    #[test]
    fn default_sets_nothing() {
        let mut headers = HeaderMap::new();
        Hygiene::default().write_to(&request(Method::GET, "https://example.org").headers, &mut headers);
        assert!(headers.is_empty() && !Hygiene::default().sends_goaway());
    }
}
