//! AWS Signature Version 4.

use aws_lc_rs::{digest, hmac};
use orlop_api::time::Time;

use super::credentials::Credentials;

/// A request to be signed.
#[derive(Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// Path as it is sent.
    pub(crate) path: &'a str,
    /// Query as it is sent.
    pub(crate) query: &'a str,
    /// Headers with names in lower case, `host` among them.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: &'a [u8],
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

/// Signs a request: adds the time, the token, and the authorization to its headers.
pub(crate) fn sign(request: &mut Signed<'_>, credentials: &Credentials, unix_seconds: i64) {
    let time = compact_time(unix_seconds);
    let date = &time[..8];
    let body = sha256_hex(request.body);
    request.headers.push(("x-amz-date".to_owned(), time.clone()));
    if request.service == "s3" {
        request.headers.push(("x-amz-content-sha256".to_owned(), body.clone()));
    }
    if let Some(token) = &credentials.session_token {
        request.headers.push(("x-amz-security-token".to_owned(), token.clone()));
    }
    request.headers.sort();
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    // S3 signs the path as sent; the others encode it once more.
    let path = if request.service == "s3" { request.path.to_owned() } else { encode_path(request.path) };
    let mut pairs: Vec<&str> = request.query.split('&').filter(|pair| !pair.is_empty()).collect();
    pairs.sort_unstable();
    let canonical = format!("{}\n{path}\n{}\n{headers}\n{names}\n{body}", request.method, pairs.join("&"));
    let scope = format!("{date}/{}/{}/aws4_request", request.region, request.service);
    let hashed = sha256_hex(canonical.as_bytes());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
    let mut key = format!("AWS4{}", credentials.secret_key).into_bytes();
    for part in [date, request.region, request.service, "aws4_request", &text] {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
    }
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
        credentials.access_key,
        hex(&key)
    );
    request.headers.push(("authorization".to_owned(), authorization));
}

fn compact_time(unix_seconds: i64) -> String {
    Time::from_unix(unix_seconds).to_string().replace(['-', ':'], "")
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encode_path(path: &str) -> String {
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

/// Percent-encodes all but the unreserved characters.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get-vanilla-query-order-key-case` of AWS' test suite for Signature Version 4.
    #[test]
    fn signature_matches_the_published_test_suite() {
        let credentials = Credentials::fixed("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let mut request = Signed {
            method: "GET",
            path: "/",
            query: "Param2=value2&Param1=value1",
            headers: vec![("host".to_owned(), "example.amazonaws.com".to_owned())],
            body: b"",
            region: "us-east-1",
            service: "service",
        };
        // 2015-08-30T12:36:00Z
        sign(&mut request, &credentials, 1_440_938_160);
        let (_, authorization) = request.headers.last().expect("a header");
        assert_eq!(
            authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
        );
    }
}
