//! Many definitions.

use std::time::Instant;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::server::{DEFINITIONS, Server, definition, version};

/// A schema of realistic size.
fn spec(fields: usize) -> Value {
    let field = |index: usize| {
        let schema = json!({"type": "object", "description": "What it is, said at the length that people say it at.",
            "properties": {"name": {"type": "string", "minLength": 1}, "value": {"type": "integer", "default": index}}});
        (format!("field{index}"), schema)
    };
    Value::Object((0..fields).map(field).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_definitions_are_served_before_their_responses() {
    const COUNT: usize = 300;
    let server = Server::start().await;
    let started = Instant::now();
    let create = |index: usize| {
        let server = &server;
        async move {
            let (plural, kind) = (format!("things{index}"), format!("Thing{index}"));
            let made = definition("many.example.com", &plural, &kind, json!([version("v1", true, spec(20))]));
            server.create(DEFINITIONS, &made).await.ok();
            assert_eq!(server.get(&format!("/apis/many.example.com/v1/{plural}")).await.code, 200);
        }
    };
    stream::iter(0..COUNT).map(create).buffer_unordered(8).collect::<Vec<()>>().await;
    eprintln!("{COUNT} definitions in {:?}", started.elapsed());
    let resources = server.get("/apis/many.example.com/v1").await.ok();
    assert_eq!(resources["resources"].as_array().unwrap().len(), COUNT);
    let document = server.get("/openapi/v3/apis/many.example.com/v1").await.ok();
    assert!(document["components"]["schemas"].get("com.example.many.v1.Thing299").is_some());
}
