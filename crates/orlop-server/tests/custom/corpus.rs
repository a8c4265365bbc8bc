//! The corpus of shapes that other people's definitions and programs showed: the cases of `orlop-compare`, held to the status
//! codes that Kubernetes answers.

use http::Method;
use serde_json::Value;

use crate::server::Server;

const CASES: &str = include_str!("../../../orlop-compare/data/cases.json");

#[tokio::test]
async fn every_case_is_answered_with_the_code_of_kubernetes() {
    let server = Server::start().await;
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        for step in case["requests"].as_array().unwrap() {
            let (method, path) = step["send"].as_str().unwrap().split_once(' ').unwrap();
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let media_type = step["type"].as_str().unwrap_or("application/json");
            let body = step["text"].as_str().map_or_else(|| step["body"].to_string(), str::to_owned);
            let body = if body == "null" { String::new() } else { body };
            let answer = server.send_text(method, path, media_type, body).await;
            if answer.code != step["expect"] {
                wrong.push(format!("{}: {}: {} {}", case["name"], step["send"], answer.code, answer.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
