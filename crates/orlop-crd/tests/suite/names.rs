//! Name acceptance and the conditions that report it.

use crate::widgets::{changed, read, widgets, with_schema};
use orlop_api::time::Time;
use orlop_crd::{
    Acceptance, Condition, Conditions, Definition, Names, accept_names, approval_condition,
    structural_condition,
};
use serde_json::{Value, json};

/// A definition of the same group that holds its names.
fn holding(name: &str, names: Value) -> Definition {
    read(&changed(widgets(), &[("/metadata/name", json!(name)), ("/status/acceptedNames", names)]))
}

fn summary(condition: &Condition) -> (&str, &str, &str) {
    (&condition.status, &condition.reason, &condition.message)
}

#[test]
fn free_names_are_accepted() {
    let asked = read(&changed(
        widgets(),
        &[("/spec/names/shortNames", json!(["w"])), ("/spec/names/categories", json!(["all"]))],
    ));
    let given = accept_names(&asked, []);
    assert_eq!(given.names, asked.names);
    assert!(given.is_complete());
    assert_eq!(summary(&given.names_accepted), ("True", "NoConflicts", "no conflicts found"));
    assert_eq!(summary(&given.established), ("False", "Installing", "the initial names have been accepted"));
    assert_eq!(
        summary(&Acceptance::established(&widgets())),
        ("True", "InitialNamesAccepted", "the initial names have been accepted")
    );
    assert_eq!(
        given.names.to_value(),
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["w"], "categories": ["all"]})
    );
    assert_eq!(Names::of(&given.names.to_value()), given.names);
}

#[test]
fn conflicting_names_are_not_accepted() {
    let asked = read(&changed(widgets(), &[("/spec/names/shortNames", json!(["w", "wi", "x"]))]));
    for (names, reason, message, missing) in [
        (json!({"plural": "widgets"}), "PluralConflict", r#""widgets" is already in use"#, "plural"),
        (json!({"shortNames": ["widget"]}), "SingularConflict", r#""widget" is already in use"#, "singular"),
        (json!({"singular": "w"}), "ShortNamesConflict", r#""w" is already in use"#, "shortNames"),
        (
            json!({"shortNames": ["w", "wi"]}),
            "ShortNamesConflict",
            r#"["w" is already in use, "wi" is already in use]"#,
            "shortNames",
        ),
        (json!({"listKind": "Widget"}), "KindConflict", r#""Widget" is already in use"#, "kind"),
        (json!({"kind": "WidgetList"}), "ListKindConflict", r#""WidgetList" is already in use"#, "listKind"),
    ] {
        let other = holding("others.example.com", names.clone());
        let given = accept_names(&asked, [&other.accepted_names]);
        assert_eq!(summary(&given.names_accepted), ("False", reason, message), "{names}");
        assert_eq!(summary(&given.established), ("False", "NotAccepted", "not all names are accepted"));
        // The rest is given.
        let expected: Vec<&str> = ["plural", "singular", "kind", "listKind", "shortNames"]
            .into_iter()
            .filter(|key| *key != missing)
            .collect();
        let value = given.names.to_value();
        let found: Vec<&str> = ["plural", "singular", "kind", "listKind", "shortNames"]
            .into_iter()
            .filter(|key| value.get(*key).is_some_and(|value| value != ""))
            .collect();
        assert_eq!(found, expected, "{names}");
    }
    // The last of several conflicts is told.
    let all = holding("others.example.com", json!({"plural": "widgets", "kind": "Widget"}));
    assert_eq!(accept_names(&asked, [&all.accepted_names]).names_accepted.reason, "KindConflict");
}

#[test]
fn accepted_names_are_kept() {
    let conditions = json!([{"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let renamed = changed(
        widgets(),
        &[
            ("/spec/names/singular", json!("gadget")),
            (
                "/status/acceptedNames",
                json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}),
            ),
            ("/status/conditions", conditions),
        ],
    );
    let renamed = read(&renamed);
    let other = holding("gadgets.example.com", json!({"singular": "gadget"}));
    let given = accept_names(&renamed, [&renamed.accepted_names, &other.accepted_names]);
    assert_eq!(given.names.singular, "widget");
    assert_eq!(given.names_accepted.reason, "SingularConflict");
    assert_eq!(summary(&given.established), ("True", "InitialNamesAccepted", "m"));
    assert_eq!(given.established.last_transition_time, "2026-01-01T00:00:00Z");
    // Its own names do not stand in its way.
    assert!(accept_names(&renamed, [&renamed.accepted_names]).is_complete());
}

#[test]
fn conditions_keep_last_transition_time() {
    let (then, now) = (Time::from_unix(0), Time::from_unix(60));
    let mut conditions = Conditions::default();
    assert!(conditions.set(Condition::new("A", "False", "R", "m"), then));
    assert!(!conditions.set(Condition::new("A", "False", "R", "m"), now));
    assert!(conditions.set(Condition::new("A", "False", "S", "n"), now));
    assert_eq!(conditions.get("A").unwrap().last_transition_time, "1970-01-01T00:00:00Z");
    assert!(conditions.set(Condition::new("A", "True", "S", "n"), now));
    assert_eq!(
        conditions.to_value(),
        json!([{"type": "A", "status": "True", "reason": "S", "message": "n", "lastTransitionTime": "1970-01-01T00:01:00Z"}])
    );
    assert!(conditions.is_true("A") && !conditions.is_true("B"));
    assert_eq!(Conditions::of(&json!({"status": {"conditions": conditions.to_value()}})), conditions);
    assert!(conditions.remove("A") && !conditions.remove("A"));
}

#[test]
fn acceptance_is_written_into_the_status() {
    let mut source = widgets();
    let given = accept_names(&read(&source), []);
    assert!(given.write(&mut source, Time::from_unix(0)));
    assert!(!given.write(&mut source, Time::from_unix(60)));
    assert_eq!(source["status"]["acceptedNames"]["plural"], "widgets");
    assert_eq!(source["status"]["conditions"][0]["type"], "NamesAccepted");
    assert_eq!(source["status"]["conditions"][1]["reason"], "Installing");
    assert_eq!(source["status"]["storedVersions"], json!(["v1"]));
    assert!(!read(&source).is_established());
}

#[test]
fn optional_conditions_are_set_only_if_relevant() {
    assert_eq!(approval_condition(&widgets()), None);
    let of = |annotation: &str| {
        let group = changed(
            widgets(),
            &[
                ("/spec/group", json!("x.kubernetes.io")),
                ("/metadata/annotations", json!({"api-approved.kubernetes.io": annotation})),
            ],
        );
        let condition = approval_condition(&group).unwrap();
        (condition.status, condition.reason, condition.message)
    };
    let three = |status: &str, reason: &str, message: &str| {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(
        of("https://example.com/1"),
        three("True", "ApprovedAnnotation", "approved in https://example.com/1")
    );
    assert_eq!(
        of("unapproved, why"),
        three("False", "UnapprovedAnnotation", r#"not approved: "unapproved, why""#)
    );
    assert_eq!(of("").1, "MissingAnnotation");
    assert_eq!(of("maybe").1, "InvalidAnnotation");

    assert_eq!(structural_condition(&widgets()), None);
    let loose = changed(
        with_schema(json!({"type": "object", "properties": {"a": {}}})),
        &[("/spec/preserveUnknownFields", json!(true))],
    );
    let condition = structural_condition(&loose).unwrap();
    assert_eq!(
        (condition.kind.as_str(), summary(&condition)),
        (
            "NonStructuralSchema",
            (
                "True",
                "Violations",
                "[spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields]"
            )
        )
    );
}
