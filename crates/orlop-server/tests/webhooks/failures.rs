//! Webhooks that do not do what they should.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

const CALLING: &str = "Internal error occurred: failed calling webhook \"a.example.com\": ";

#[tokio::test]
async fn failures_close_or_open_as_the_policy_says() {
    let hook = Hook::start(&[], allow).await;
    let url = format!("Post \"https://127.0.0.1:{}/admit?timeout=1s\"", hook.port);
    let chain = server().await;
    let mut closing = webhook(&hook, "a.example.com");
    closing["timeoutSeconds"] = 1.into();
    let mut opening = closing.clone();
    opening["failurePolicy"] = "Ignore".into();
    let cases: Vec<(Reply, String)> = vec![
        (Reply::Hang, format!("failed to call webhook: {url}: context deadline exceeded")),
        (Reply::Close, format!("failed to call webhook: {url}: EOF")),
        (
            Reply::CutOff,
            "failed to call webhook: unexpected error when reading response body. Please retry. Original error: \
             unexpected EOF"
                .to_owned(),
        ),
        (
            Reply::Redirect(format!("https://127.0.0.1:{}/other", hook.port)),
            "failed to call webhook: the server responded with the status code 307 but did not return more information"
                .to_owned(),
        ),
        (
            Reply::Raw(500, "text/plain", b"broken\n".to_vec()),
            "failed to call webhook: an error on the server (\"broken\") has prevented the request from succeeding"
                .to_owned(),
        ),
        (
            Reply::Raw(404, "text/plain", b"404 page not found".to_vec()),
            "failed to call webhook: the server could not find the requested resource".to_owned(),
        ),
        (
            Reply::Raw(200, "application/json", Vec::new()),
            "failed to call webhook: 0-length response with status code: 200 and content type: ".to_owned(),
        ),
        (
            Reply::Raw(200, "application/json", b"nonsense".to_vec()),
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'o' in literal null \
             (expecting 'u')"
                .to_owned(),
        ),
        (
            Reply::Raw(200, "application/json", vec![b'['; 100_000]),
            "failed to call webhook: couldn't get version/kind; json parse error: exceeded max depth".to_owned(),
        ),
        (
            Reply::Raw(200, "application/json", vec![b' '; 17 << 20]),
            "failed to call webhook: the response is larger than 16777216 bytes".to_owned(),
        ),
        (Reply::Json(json!({})), "received invalid webhook response: webhook response was absent".to_owned()),
        (
            Reply::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": "lie", "allowed": true}})),
            "received invalid webhook response: expected response.uid=".to_owned(),
        ),
        (
            Reply::Json(json!({"response": {"allowed": "yes"}})),
            "failed to call webhook: json: cannot unmarshal string into Go struct field \
             AdmissionResponse.response.allowed of type bool"
                .to_owned(),
        ),
    ];
    for (index, (reply, expected)) in cases.into_iter().enumerate() {
        for path in [MUTATING, VALIDATING] {
            let answered = reply.clone();
            hook.answers(move |_| answered.clone());
            configure(&chain, path, "c", &[closing.clone()]).await;
            let started = Instant::now();
            let (code, failed) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
            assert!(started.elapsed() < Duration::from_secs(30), "the server is not stuck");
            assert_eq!(code, 500, "{failed}");
            let message = failed["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{CALLING}{expected}")), "{message}\n  wanted {expected}");
            assert_eq!((&failed["reason"], &failed["status"]), (&json!("InternalError"), &json!("Failure")));
            assert_eq!(call(&chain, "GET", &format!("{MAPS}/m"), None).await.0, 404, "never a bypass");
            assert_eq!(call(&chain, "DELETE", &format!("{path}/c"), None).await.0, 200);

            configure(&chain, path, "c", &[opening.clone()]).await;
            let name = format!("open-{index}-{}", path == MUTATING);
            assert_eq!(call(&chain, "POST", MAPS, Some(&config_map(&name))).await.0, 201, "failed open");
            assert_eq!(call(&chain, "DELETE", &format!("{path}/c"), None).await.0, 200);
        }
    }
    // The configurations themselves are written without the webhook, whatever it does.
    let mut all = closing.clone();
    all["rules"] = json!([rule("*", "*", "*")]);
    configure(&chain, VALIDATING, "all", &[all]).await;
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 500);
    assert_eq!(call(&chain, "DELETE", &format!("{VALIDATING}/all"), None).await.0, 200);
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 201);
}

#[tokio::test]
async fn unreachable_and_untrusted_webhooks_are_failures() {
    let hook = Hook::start(&[], allow).await;
    let chain = server().await;
    let message = async |client: Value| {
        let mut webhook = webhook(&hook, "a.example.com");
        webhook["clientConfig"] = client;
        configure(&chain, VALIDATING, "c", &[webhook]).await;
        let (code, failed) = call(&chain, "POST", MAPS, Some(&config_map("m"))).await;
        assert_eq!(code, 500, "{failed}");
        assert_eq!(call(&chain, "DELETE", &format!("{VALIDATING}/c"), None).await.0, 200);
        failed["message"].as_str().unwrap().strip_prefix(CALLING).unwrap().to_owned()
    };
    let url = format!("https://127.0.0.1:{}/", hook.port);
    assert_eq!(
        message(json!({"url": "https://127.0.0.1:1/", "caBundle": hook.ca_bundle})).await,
        "failed to call webhook: Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection \
         refused"
    );
    assert_eq!(
        message(json!({"url": url, "caBundle": "Cg=="})).await,
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    );
    let stranger = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let bundle = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, stranger.cert.pem());
    assert!(
        message(json!({"url": url, "caBundle": bundle}))
            .await
            .ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority")
    );
    assert_eq!(
        message(json!({"service": {"namespace": "default", "name": "s", "path": "/p"}, "caBundle": hook.ca_bundle}))
            .await,
        "failed to call webhook: Post \"https://s.default.svc:443/p?timeout=10s\": service \"s\" not found"
    );
    assert_eq!(hook.calls(), 0);
}

#[tokio::test]
async fn call_ends_with_the_requests_deadline() {
    let hook = Hook::start(&[], |_| Reply::Hang).await;
    let chain = server().await;
    let mut patient = webhook(&hook, "a.example.com");
    patient["timeoutSeconds"] = 30.into();
    configure(&chain, VALIDATING, "c", &[patient]).await;
    let started = Instant::now();
    let (code, failed) = call(&chain, "POST", &format!("{MAPS}?timeout=1s"), Some(&config_map("m"))).await;
    assert!(matches!(code, 500 | 504), "{failed}");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(hook.take_paths(), ["/admit?timeout=1s"], "the webhook is told how long it has");
}
