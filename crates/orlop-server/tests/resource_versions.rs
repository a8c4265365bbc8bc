//! resourceVersion semantics of get, list and watch: each row of Kubernetes' table. Responses were compared with a
//! kube-apiserver.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use http_body_util::BodyExt;
use orlop_server::chain::Chain;
use serde_json::{Value, json};
use support::{Events, ask, call, config_map, create, get, server, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server with the ConfigMaps c0 to c4. Returns the resourceVersion of each.
async fn five() -> (Chain, orlop_store::Store, Vec<String>) {
    let (chain, store) = server().await;
    let mut versions = Vec::new();
    for number in 0..5 {
        let labels = json!({"parity": if number % 2 == 0 { "even" } else { "odd" }, "n": number.to_string()});
        versions.push(create(&chain, MAPS, &config_map(&format!("c{number}"), &labels)).await);
    }
    (chain, store, versions)
}

fn names(list: &Value) -> String {
    let names =
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn list_is_of_the_requested_revision() {
    let (chain, _store, versions) = five().await;
    let (first, newest) = (versions[1].as_str(), versions[4].as_str());
    let all = "c0 c1 c2 c3 c4";
    // Query, names, true if at the requested revision, and remainingItemCount.
    for (query, expected, exact, remaining) in [
        ("".to_owned(), all, false, None),
        ("limit=2".to_owned(), "c0 c1", false, Some(3)),
        ("resourceVersionMatch=&limit=2".to_owned(), "c0 c1", false, Some(3)),
        ("resourceVersion=0".to_owned(), all, false, None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), all, false, None),
        (format!("resourceVersion={first}"), all, false, None),
        (format!("resourceVersion=0{first}"), all, false, None),
        (format!("resourceVersion={first}&limit=2"), "c0 c1", true, None),
        (format!("resourceVersion={first}&limit=1"), "c0", true, Some(1)),
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), "c0 c1", true, None),
        (format!("resourceVersion={first}&resourceVersionMatch=Exact&limit=1"), "c0", true, Some(1)),
        (format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan"), all, false, None),
        (
            format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan&limit=2"),
            "c0 c1",
            false,
            Some(3),
        ),
        ("limit=-1".to_owned(), all, false, None),
        ("limit=2&labelSelector=parity=even".to_owned(), "c0 c2", false, None),
        ("labelSelector=n%3E2".to_owned(), "c3 c4", false, None),
        ("fieldSelector=metadata.name=c1".to_owned(), "c1", false, None),
        ("fieldSelector=metadata.name!=c1,metadata.namespace=default".to_owned(), "c0 c2 c3 c4", false, None),
    ] {
        let (code, list) = get(&chain, &format!("{MAPS}?{query}")).await;
        assert_eq!((code, names(&list).as_str()), (200, expected), "{query}");
        let asked = if exact { first } else { newest };
        let shown = version(&list);
        if exact {
            assert_eq!(shown, asked, "{query}");
        } else {
            assert!(shown.parse::<u64>().unwrap() >= asked.parse::<u64>().unwrap(), "{query}: {shown}");
        }
        let metadata = &list["metadata"];
        assert_eq!(metadata["remainingItemCount"].as_i64(), remaining, "{query}");
        let continues = remaining.is_some() || query.starts_with("limit=2&label");
        assert_eq!(metadata["continue"].is_string(), continues, "{query}");
    }
}

#[tokio::test]
async fn pages_are_of_one_revision_with_remaining_item_count() {
    let (chain, _store, _) = five().await;
    let (_, first) = get(&chain, &format!("{MAPS}?limit=2")).await;
    create(&chain, MAPS, &config_map("c22", &json!({}))).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, second) = get(&chain, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((code, names(&second).as_str()), (200, "c2 c3"));
    assert_eq!(version(&second), version(&first));
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, last) = get(&chain, &format!("{MAPS}?limit=2&continue={token}&resourceVersion=0")).await;
    assert_eq!(names(&last), "c4");
    assert_eq!(last["metadata"].as_object().unwrap().keys().collect::<Vec<_>>(), ["resourceVersion"]);
}

#[tokio::test]
async fn expired_continue_token_returns_an_inconsistent_one() {
    let (chain, store, versions) = five().await;
    let (_, first) = get(&chain, &format!("{MAPS}?limit=2")).await;
    create(&chain, MAPS, &config_map("c22", &json!({}))).await;
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, expired) = get(&chain, &format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((code, expired["reason"].as_str()), (410, Some("Expired")));
    let message = expired["message"].as_str().unwrap();
    assert!(message.starts_with("The provided continue parameter is too old"), "{message}");
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = get(&chain, &format!("{MAPS}?continue={token}")).await;
    assert_eq!((code, names(&rest).as_str()), (200, "c2 c22 c3 c4"));
    assert_ne!(version(&rest), version(&first));
    let old = &versions[0];
    let (code, gone) = get(&chain, &format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((code, gone["reason"].as_str()), (410, Some("Expired")), "{gone}");
}

#[tokio::test]
async fn future_resource_version_times_out() {
    let (chain, _store, _) = five().await;
    tokio::time::pause();
    for path in [
        format!("{MAPS}?resourceVersion=900000"),
        format!("{MAPS}?resourceVersion=900000&limit=1"),
        format!("{MAPS}?resourceVersion=900000&resourceVersionMatch=Exact"),
        format!("{MAPS}/c0?resourceVersion=900000"),
        format!("{MAPS}?resourceVersion=18446744073709551615"),
        format!(
            "{MAPS}?watch=1&resourceVersion=900000&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
        ),
    ] {
        let (code, status) = get(&chain, &path).await;
        assert_eq!((code, status["reason"].as_str()), (504, Some("Timeout")), "{path}");
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("Timeout: Too large resource version: "), "{message}");
        let details = json!({"causes": [{"reason": "ResourceVersionTooLarge",
            "message": "Too large resource version"}], "retryAfterSeconds": 1});
        assert_eq!(status["details"], details, "{path}");
    }
}

#[tokio::test]
async fn contradictory_list_options_are_refused() {
    let (chain, _store, versions) = five().await;
    let (_, page) = get(&chain, &format!("{MAPS}?limit=2")).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    let invalid =
        |field: &str, why: &str| (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {why}"));
    let matching = |why: &str| invalid("resourceVersionMatch", why);
    let bad = |why: &str| (400, why.to_owned());
    let unread = "invalid resource version: resourceVersion: Invalid value: \"x\": \
        strconv.ParseUint: parsing \"x\": invalid syntax";
    let unless = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let events = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let watch = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    for (query, (code, message)) in [
        ("resourceVersionMatch=Exact".to_owned(), matching(unless)),
        ("resourceVersionMatch=NotOlderThan".to_owned(), matching(unless)),
        (
            "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
            matching("Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Bogus".to_owned(),
            matching("Unsupported value: \"Bogus\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        ),
        ("resourceVersion=x".to_owned(), bad(unread)),
        ("watch=1&resourceVersion=x".to_owned(), bad(unread)),
        (
            format!("continue={token}&resourceVersion={}", versions[0]),
            bad("specifying resource version is not allowed when using continue"),
        ),
        (
            "continue=!!!".to_owned(),
            bad("invalid continue token: continue key is not valid: illegal base64 data at input byte 0"),
        ),
        (
            "continue=abc".to_owned(),
            bad("invalid continue token: continue key is not valid: \
                 invalid character 'i' looking for beginning of value"),
        ),
        (
            "sendInitialEvents=true".to_owned(),
            invalid("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"),
        ),
        ("limit=x".to_owned(), bad("strconv.ParseInt: parsing \"x\": invalid syntax")),
        ("timeoutSeconds=x".to_owned(), bad("strconv.ParseInt: parsing \"x\": invalid syntax")),
        (
            "labelSelector=a===b".to_owned(),
            bad("unable to parse requirement: found '=', expected: identifier"),
        ),
        ("watch=1&sendInitialEvents=true".to_owned(), matching(events)),
        ("watch=1&sendInitialEvents=false".to_owned(), matching(events)),
        ("watch=1&resourceVersionMatch=NotOlderThan".to_owned(), matching(watch)),
    ] {
        let (answered, status) = get(&chain, &format!("{MAPS}?{query}")).await;
        assert_eq!((answered, status["message"].as_str()), (code, Some(message.as_str())), "{query}");
    }
}

#[tokio::test]
async fn watch_starts_at_the_requested_revision() {
    let (chain, _store, versions) = five().await;
    let after = &versions[2];
    let everything = ["ADDED c0", "ADDED c1", "ADDED c2", "ADDED c3", "ADDED c4"];
    let changes = ["ADDED c3", "ADDED c4"];
    let none: [&str; 0] = [];
    let mut with_end = everything.to_vec();
    with_end.push("BOOKMARK end");
    let initial = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    for (query, expected) in [
        ("".to_owned(), &everything[..]),
        ("resourceVersion=0".to_owned(), &everything),
        (format!("resourceVersion={after}"), &changes),
        ("resourceVersion=1".to_owned(), &everything),
        (initial.to_owned(), &everything),
        (format!("{initial}&allowWatchBookmarks=true"), &with_end),
        (format!("{initial}&allowWatchBookmarks=true&resourceVersion=0"), &with_end),
        (format!("{initial}&allowWatchBookmarks=true&resourceVersion={after}"), &with_end),
        ("resourceVersionMatch=NotOlderThan&sendInitialEvents=false".to_owned(), &none),
        (
            format!("resourceVersionMatch=NotOlderThan&sendInitialEvents=false&resourceVersion={after}"),
            &changes,
        ),
    ] {
        let watch = Events::of(&chain, &format!("{MAPS}?watch=1&timeoutSeconds=1&{query}")).await;
        assert_eq!(watch.all().await, expected, "{query}");
    }
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={after}&timeoutSeconds=1");
    let everywhere = Events::of(&chain, &path);
    assert_eq!(everywhere.await.all().await, changes);
}

#[tokio::test]
async fn watch_from_a_compacted_revision_is_expired() {
    let (chain, store, versions) = five().await;
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let (code, status) = get(&chain, &format!("{MAPS}?watch=1&resourceVersion={}", versions[0])).await;
    assert_eq!((code, status["reason"].as_str()), (410, Some("Expired")));
}

#[tokio::test]
async fn watch_with_selector_gets_added_and_deleted_on_label_changes() {
    let (chain, _store, versions) = five().await;
    let from = &versions[4];
    let label = |value: &str| json!({"metadata": {"labels": {"parity": value}}});
    let path = |query: &str| format!("{MAPS}?watch=1&resourceVersion={from}&{query}");
    let mut odd = Events::of(&chain, &path("labelSelector=parity=odd")).await;
    let mut large = Events::of(&chain, &path("labelSelector=n%3E3")).await;
    let mut one = Events::of(&chain, &path("fieldSelector=metadata.name=c0")).await;
    let mut other = Events::of(&chain, &path("fieldSelector=metadata.name!=c0")).await;
    let mut deprecated =
        Events::of(&chain, &format!("/api/v1/watch/namespaces/default/configmaps/c0?resourceVersion={from}"))
            .await;

    let (code, changed) = call(&chain, "PATCH", &format!("{MAPS}/c0"), Some(&label("odd"))).await;
    assert_eq!(code, 200, "{changed}");
    call(&chain, "PATCH", &format!("{MAPS}/c1"), Some(&json!({"data": {"x": "y"}}))).await;
    let (_, left) = call(&chain, "PATCH", &format!("{MAPS}/c0"), Some(&label("even"))).await;
    call(&chain, "PATCH", &format!("{MAPS}/c4"), Some(&json!({"metadata": {"labels": {"n": "1"}}}))).await;
    call(&chain, "DELETE", &format!("{MAPS}/c3"), None).await;
    call(&chain, "DELETE", &format!("{MAPS}/c0"), None).await;

    assert_eq!(odd.next_short(2).await, ["ADDED c0", "MODIFIED c1"]);
    let leaving = odd.next().await.unwrap();
    assert_eq!(support::short(&leaving), "DELETED c0");
    // DELETED has the last selected state, at the revision of the change.
    assert_eq!(leaving["object"]["metadata"]["labels"]["parity"], "odd");
    assert_eq!(version(&leaving["object"]), version(&left));
    assert_eq!(odd.next_short(1).await, ["DELETED c3"]);
    assert_eq!(large.next_short(1).await, ["DELETED c4"]);
    assert_eq!(one.next_short(3).await, ["MODIFIED c0", "MODIFIED c0", "DELETED c0"]);
    assert_eq!(deprecated.next_short(3).await, ["MODIFIED c0", "MODIFIED c0", "DELETED c0"]);
    assert_eq!(other.next_short(3).await, ["MODIFIED c1", "MODIFIED c4", "DELETED c3"]);
}

#[tokio::test]
async fn unknown_field_selectors_are_refused() {
    let (chain, _store) = server().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    for (name, kind) in [("a", "Opaque"), ("b", "example.org/own")] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind});
        create(&chain, secrets, &secret).await;
    }
    let (_, list) = get(&chain, &format!("{secrets}?fieldSelector=type=example.org/own")).await;
    assert_eq!(names(&list), "b");
    let (_, list) =
        get(&chain, &format!("{secrets}?fieldSelector=type!=example.org/own,metadata.name=a")).await;
    assert_eq!(names(&list), "a");
    let (code, refused) = get(&chain, &format!("{secrets}?fieldSelector=data.x=1")).await;
    assert_eq!((code, refused["message"].as_str()), (400, Some("field label not supported: data.x")));
    let (code, refused) = get(&chain, &format!("{MAPS}?fieldSelector=data.x=1")).await;
    let unknown = "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    assert_eq!((code, refused["message"].as_str()), (400, Some(unknown)));
    let (code, refused) = get(&chain, &format!("{MAPS}?fieldSelector=a")).await;
    assert_eq!(code, 400, "{refused}");
}

#[tokio::test]
async fn watch_gets_bookmarks_each_minute_and_before_its_timeout() {
    let (chain, _store, _) = five().await;
    let (_, list) = get(&chain, &format!("{MAPS}?limit=1")).await;
    let from = version(&list);
    let path = format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=150");
    // Before the watch: its timeout then ends no earlier, however long the request takes.
    let started = tokio::time::Instant::now();
    let mut told = ask(&chain, "GET", &format!("{path}&allowWatchBookmarks=true"), &[], "").await.into_body();
    let mut untold = ask(&chain, "GET", &path, &[], "").await.into_body();
    // Paused time advances when all tasks wait.
    tokio::time::pause();
    let mut moments = Vec::new();
    while let Some(frame) = told.frame().await {
        let event: Value = serde_json::from_slice(&frame.unwrap().into_data().unwrap()).unwrap();
        let (kind, object) = (&event["type"], &event["object"]);
        assert_eq!((kind, &object["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")), "{event}");
        assert_eq!(object["metadata"]["resourceVersion"], from.as_str());
        moments.push(started.elapsed().as_secs());
    }
    assert_eq!(moments, [60, 120, 148]);
    assert!(untold.frame().await.is_none(), "it did not ask for that");
}
