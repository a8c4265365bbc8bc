//! route53 HostedZone.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::route53_record_set::{API, bare, list_records};
use crate::{
    client::{Failure, ROUTE53, Result, Session, optional, parse_xml, path, xml_text},
    fields::{Difference, child, escape, from_xml, parse},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Tags, differs, tag_changes},
};

#[derive(Debug)]
pub(crate) struct HostedZone;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &ROUTE53,
    kind: "HostedZone",
    plural: "hostedzones",
    spec: LazyLock::new(|| {
        parse(
            "delegationSetID=^ hostedZoneConfig>Config{comment~ privateZone=:b~} name!= tags~[]{key value}
             vpc^>VPC{vpcID>VPCId vpcRegion>VPCRegion} vpcs^[]{vpcID vpcRegion}",
        )
    }),
    status: LazyLock::new(|| {
        parse(
            "callerReference config{comment privateZone:b}
             delegationSet{callerReference id nameServers[]>NameServers/NameServer} id
             linkedService{description servicePrincipal} resourceRecordSetCount:i",
        )
    }),
    adoption: &[("id", "status.id")],
    identity: &["name"],
    references: &[],
    terminal: &["DelegationSetNotReusable", "InvalidDomainName", "InvalidInput", "InvalidVPCId"],
    late: &[],
    tags: Tags::List("tags"),
    resync: None,
    actions: &[
        "route53:CreateHostedZone",
        "route53:GetHostedZone",
        "route53:DeleteHostedZone",
        "route53:UpdateHostedZoneComment",
        "route53:ListHostedZonesByName",
        "route53:ListResourceRecordSets",
        "route53:ChangeTagsForResource",
        "route53:ListTagsForResource",
        "route53:AssociateVPCWithHostedZone",
        "route53:DisassociateVPCFromHostedZone",
        "ec2:DescribeVpcs",
    ],
    columns: &[("ZONE", "string", ".status.id")],
};

fn vpcs(value: &Value) -> Vec<(String, String)> {
    let one = value.get("vpc").into_iter();
    let many = value["vpcs"].as_array().into_iter().flatten();
    let text = |vpc: &Value, field: &str| vpc[field].as_str().unwrap_or_default().to_owned();
    one.chain(many).map(|vpc| (text(vpc, "vpcID"), text(vpc, "vpcRegion"))).collect()
}

fn vpc_xml((id, region): &(String, String)) -> String {
    format!("<VPC><VPCRegion>{}</VPCRegion><VPCId>{}</VPCId></VPC>", escape(region), escape(id))
}

#[async_trait]
impl Kind for HostedZone {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn validate(&self, object: &Object) -> Result<()> {
        let (one, many) = (object.spec.get("vpc"), object.spec["vpcs"].as_array());
        if one.is_some() && many.is_some_and(|many| !many.is_empty()) {
            return Err(Failure::Terminal(
                "spec.vpc and spec.vpcs are mutually exclusive; use one of them".to_owned(),
            ));
        }
        for (at, vpc) in many.into_iter().flatten().enumerate() {
            if vpc["vpcID"].as_str().is_none_or(str::is_empty) {
                return Err(Failure::Terminal(format!("spec.vpcs[{at}].vpcID is required")));
            }
        }
        Ok(())
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let Some(id) = object.status("id").map(bare) else { return Ok(None) };
        let read =
            aws.xml(&ROUTE53, "GetHostedZone", "GET", &path(&[API, "hostedzone", id]), &[], None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let (mut spec, status) = {
            let document = parse_xml(&answer)?;
            let Some(zone) = child(document.root_element(), "HostedZone") else { return Ok(None) };
            let mut spec = from_xml(&DESCRIPTOR.spec, zone);
            let mut status = from_xml(&DESCRIPTOR.status, zone);
            if let Some(set) = from_xml(&DESCRIPTOR.status, document.root_element()).get("delegationSet") {
                status["delegationSet"] = set.clone();
            }
            let found = document.descendants().filter(|node| node.tag_name().name() == "VPC");
            let found = found.map(|vpc| {
                let text =
                    |name: &str| child(vpc, name).and_then(|node| node.text()).unwrap_or_default().to_owned();
                json!({"vpcID": text("VPCId"), "vpcRegion": text("VPCRegion")})
            });
            spec["vpcs"] = found.collect();
            (spec, status)
        };
        let address = path(&[API, "tags", "hostedzone", id]);
        let tags = aws.xml(&ROUTE53, "ListTagsForResource", "GET", &address, &[], None).await?;
        spec["tags"] = {
            let document = parse_xml(&tags)?;
            let found = document.descendants().filter(|node| node.tag_name().name() == "Tag");
            found.map(|tag| from_xml(&parse("key value"), tag)).collect()
        };
        let arn = format!("arn:{}:route53:::hostedzone/{id}", aws.partition);
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let mut body = format!(
            "<CreateHostedZoneRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Name>{}</Name>",
            escape(object.need("name"))
        );
        if let Some(vpc) = vpcs(&object.spec).first() {
            body.push_str(&vpc_xml(vpc));
        }
        // The same reference is the same zone, however often it is asked for.
        body.push_str(&format!(
            "<CallerReference>{}</CallerReference><HostedZoneConfig>",
            escape(&object.uid)
        ));
        if let Some(comment) = object.spec("hostedZoneConfig.comment") {
            body.push_str(&format!("<Comment>{}</Comment>", escape(comment)));
        }
        let private = object.spec["hostedZoneConfig"]["privateZone"].as_bool().unwrap_or_default();
        body.push_str(&format!("<PrivateZone>{private}</PrivateZone></HostedZoneConfig>"));
        if let Some(set) = object.spec("delegationSetID") {
            body.push_str(&format!("<DelegationSetId>{}</DelegationSetId>", escape(set)));
        }
        body.push_str("</CreateHostedZoneRequest>");
        let address = path(&[API, "hostedzone"]);
        match aws.xml(&ROUTE53, "CreateHostedZone", "POST", &address, &[], Some(body)).await {
            Ok(answer) => Ok(json!({"id": xml_text(&answer, "Id")})),
            Err(failure) if failure.is(&["HostedZoneAlreadyExists"]) => {
                self.find(aws, object).await?.ok_or(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Looks for the caller reference among the zones of the name.
    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let address = path(&[API, "hostedzonesbyname"]);
        let query = [("dnsname", object.need("name"))];
        let answer = aws.xml(&ROUTE53, "ListHostedZonesByName", "GET", &address, &query, None).await?;
        let document = parse_xml(&answer)?;
        let mut zones = document.descendants().filter(|node| node.tag_name().name() == "HostedZone");
        let text = |zone: roxmltree::Node<'_, '_>, name: &str| {
            child(zone, name).and_then(|node| node.text()).unwrap_or_default().to_owned()
        };
        let ours = zones.find(|zone| text(*zone, "CallerReference") == object.uid);
        Ok(ours.map(|zone| json!({"id": text(zone, "Id")})))
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let name = |value: &Value| {
            let name = value["name"].as_str().unwrap_or_default();
            name.trim_end_matches('.').to_lowercase()
        };
        changed.retain(|difference| difference.field != "name" || name(&object.spec) != name(&observed.spec));
        let (mut desired, mut seen) = (vpcs(&object.spec), vpcs(&observed.spec));
        desired.sort();
        seen.sort();
        if desired != seen && !desired.is_empty() {
            changed.push(Difference { field: "vpcs".to_owned(), path: "vpcs".to_owned() });
        }
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let id = object.status("id").map(bare).unwrap_or_default();
        if differs(changed, "tags") {
            let (add, remove) = tag_changes(object, observed);
            let mut body = String::from(
                "<ChangeTagsForResourceRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\">",
            );
            if !add.is_empty() {
                let tags = add.iter().map(|(key, value)| {
                    format!("<Tag><Key>{}</Key><Value>{}</Value></Tag>", escape(key), escape(value))
                });
                body.push_str(&format!("<AddTags>{}</AddTags>", tags.collect::<String>()));
            }
            if !remove.is_empty() {
                let keys = remove.iter().map(|key| format!("<Key>{}</Key>", escape(key)));
                body.push_str(&format!("<RemoveTagKeys>{}</RemoveTagKeys>", keys.collect::<String>()));
            }
            body.push_str("</ChangeTagsForResourceRequest>");
            let address = path(&[API, "tags", "hostedzone", id]);
            aws.xml(&ROUTE53, "ChangeTagsForResource", "POST", &address, &[], Some(body)).await?;
        }
        if differs(changed, "hostedZoneConfig") {
            let comment = object.spec("hostedZoneConfig.comment").unwrap_or_default();
            let body = format!(
                "<UpdateHostedZoneCommentRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Comment>{}\
                 </Comment></UpdateHostedZoneCommentRequest>",
                escape(comment)
            );
            let address = path(&[API, "hostedzone", id]);
            aws.xml(&ROUTE53, "UpdateHostedZoneComment", "POST", &address, &[], Some(body)).await?;
        }
        if differs(changed, "vpcs") {
            let (desired, seen) = (vpcs(&object.spec), vpcs(&observed.spec));
            let address = |verb: &str| path(&[API, "hostedzone", id, verb]);
            for vpc in desired.iter().filter(|vpc| !seen.contains(vpc)) {
                let body = vpc_request("AssociateVPCWithHostedZoneRequest", vpc);
                let to = address("associatevpc");
                aws.xml(&ROUTE53, "AssociateVPCWithHostedZone", "POST", &to, &[], Some(body)).await?;
            }
            for vpc in seen.iter().filter(|vpc| !desired.contains(vpc)) {
                let body = vpc_request("DisassociateVPCFromHostedZoneRequest", vpc);
                let to = address("disassociatevpc");
                aws.xml(&ROUTE53, "DisassociateVPCFromHostedZone", "POST", &to, &[], Some(body)).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, observed: &Observed) -> Result<Deletion> {
        let id = object.status("id").map(bare).unwrap_or_default();
        let seen = vpcs(&observed.spec);
        for vpc in seen.iter().skip(1) {
            let body = vpc_request("DisassociateVPCFromHostedZoneRequest", vpc);
            let to = path(&[API, "hostedzone", id, "disassociatevpc"]);
            aws.xml(&ROUTE53, "DisassociateVPCFromHostedZone", "POST", &to, &[], Some(body)).await?;
        }
        let address = path(&[API, "hostedzone", id]);
        match optional(aws.xml(&ROUTE53, "DeleteHostedZone", "DELETE", &address, &[], None).await, &[]) {
            Err(failure) if failure.is(&["HostedZoneNotEmpty"]) => {
                let records = list_records(aws, id, None).await?;
                let left = records.iter().filter(|record| !["NS", "SOA"].contains(&record.kind.as_str()));
                let left: Vec<_> =
                    left.take(10).map(|record| format!("{} {}", record.kind, record.name)).collect();
                Err(Failure::Recoverable(format!(
                    "HostedZoneNotEmpty: the zone still has {}",
                    left.join(", ")
                )))
            }
            other => other.map(|_| Deletion::Gone),
        }
    }
}

fn vpc_request(name: &str, vpc: &(String, String)) -> String {
    format!("<{name} xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\">{}</{name}>", vpc_xml(vpc))
}
