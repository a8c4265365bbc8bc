"""Sends the same requests to two API servers and compares the answers: compare.py OURS PEER (kubeconfigs)."""
import json,ssl,sys,urllib.request,yaml,base64,tempfile
def client(kc):
    c=yaml.safe_load(open(kc)); s=c['clusters'][0]['cluster']['server']; u=c['users'][0]['user']
    ctx=ssl._create_unverified_context()
    if 'client-certificate-data' in u:
        f=tempfile.NamedTemporaryFile(delete=False); f.write(base64.b64decode(u['client-certificate-data'])+b'\n'+base64.b64decode(u['client-key-data'])); f.close(); ctx.load_cert_chain(f.name)
    def call(method,path,body=None,ct='application/json'):
        r=urllib.request.Request(s+path,method=method,data=json.dumps(body).encode() if body is not None else None,headers={'Content-Type':ct,'User-Agent':'diff/1'})
        if 'token' in u: r.add_header('Authorization','Bearer '+u['token'])
        try: x=urllib.request.urlopen(r,context=ctx); return x.status,json.load(x)
        except urllib.error.HTTPError as e:
            t=e.read()
            try: return e.code,json.loads(t)
            except Exception: return e.code,t.decode()
    return call
ours,peer=client(sys.argv[1]),client(sys.argv[2])
def norm(o):
    if isinstance(o,dict):
        return {k:norm(v) for k,v in o.items() if k not in('uid','resourceVersion','creationTimestamp','time','lastTransitionTime')}
    if isinstance(o,list): return [norm(x) for x in o]
    return o
def walk(a,b,p=''):
    if type(a)!=type(b): yield p,a,b; return
    if isinstance(a,dict):
        for k in sorted(set(a)|set(b)):
            if k not in a: yield p+'.'+k,'<absent>',b[k]
            elif k not in b: yield p+'.'+k,a[k],'<absent>'
            else: yield from walk(a[k],b[k],p+'.'+k)
    elif isinstance(a,list):
        if len(a)!=len(b): yield p,a,b
        else:
            for i,(x,y) in enumerate(zip(a,b)): yield from walk(x,y,f'{p}[{i}]')
    elif a!=b: yield p,a,b
pod={"containers":[{"name":"c","image":"i"}]}
tmpl={"metadata":{"labels":{"a":"b"}},"spec":pod}
sel={"matchLabels":{"a":"b"}}
N='/api/v1/namespaces/default/'
def A(g): return f'/apis/{g}/namespaces/default/'
cases=[
 ('POST','/api/v1/namespaces',{"metadata":{"name":"nn"}}),
 ('POST',N+'configmaps',{"metadata":{"name":"x","labels":{"a":"b"}},"data":{"k":"v"}}),
 ('POST',N+'configmaps',{"metadata":{"name":"empty"}}),
 ('POST',N+'secrets',{"metadata":{"name":"x"},"stringData":{"k":"v"}}),
 ('POST',N+'serviceaccounts',{"metadata":{"name":"x"}}),
 ('POST',N+'services',{"metadata":{"name":"x"},"spec":{"clusterIP":"10.0.7.7","selector":{"a":"b"},"ports":[{"port":80}]}}),
 ('POST',N+'services',{"metadata":{"name":"hl"},"spec":{"clusterIP":"None","selector":{"a":"b"},"ports":[{"port":80,"name":"z"}]}}),
 ('POST',N+'services',{"metadata":{"name":"en"},"spec":{"type":"ExternalName","externalName":"a.b"}}),
 ('POST',N+'pods',{"metadata":{"name":"x"},"spec":pod}),
 ('POST',N+'pods',{"metadata":{"name":"y"},"spec":{"containers":[{"name":"c","image":"i:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"},{"name":"F","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"limits":{"cpu":"0.5","memory":"1Gi"}},"livenessProbe":{"httpGet":{"path":"/","port":80}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"initContainers":[{"name":"i","image":"i"}],"volumes":[{"name":"v","configMap":{"name":"x"}},{"name":"e","emptyDir":{}}],"tolerations":[{"operator":"Exists"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"Exists"}]}]}}}}}),
 ('POST',N+'podtemplates',{"metadata":{"name":"x"},"template":tmpl}),
 ('POST',N+'replicationcontrollers',{"metadata":{"name":"x"},"spec":{"template":tmpl}}),
 ('POST',N+'limitranges',{"metadata":{"name":"x"},"spec":{"limits":[{"type":"Container","max":{"cpu":"1"}}]}}),
 ('POST',N+'resourcequotas',{"metadata":{"name":"x"},"spec":{"hard":{"pods":"5000"}}}),
 ('POST',N+'persistentvolumeclaims',{"metadata":{"name":"x"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}),
 ('POST','/api/v1/persistentvolumes',{"metadata":{"name":"x"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"}}}),
 ('POST','/api/v1/nodes',{"metadata":{"name":"x"},"spec":{"unschedulable":True}}),
 ('POST',N+'endpoints',{"metadata":{"name":"x"},"subsets":[{"addresses":[{"ip":"1.2.3.4"}],"ports":[{"port":80}]}]}),
 ('POST',N+'events',{"metadata":{"name":"x"},"involvedObject":{"kind":"Pod","name":"x","namespace":"default"},"reason":"R","message":"m","type":"Normal"}),
 ('POST',A('apps/v1')+'deployments',{"metadata":{"name":"x"},"spec":{"selector":sel,"template":tmpl}}),
 ('POST',A('apps/v1')+'replicasets',{"metadata":{"name":"x"},"spec":{"selector":sel,"template":tmpl}}),
 ('POST',A('apps/v1')+'statefulsets',{"metadata":{"name":"x"},"spec":{"serviceName":"s","selector":sel,"template":tmpl,"volumeClaimTemplates":[{"metadata":{"name":"d"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}),
 ('POST',A('apps/v1')+'daemonsets',{"metadata":{"name":"x"},"spec":{"selector":sel,"template":tmpl}}),
 ('POST',A('apps/v1')+'controllerrevisions',{"metadata":{"name":"x"},"revision":1,"data":{"a":1}}),
 ('POST',A('batch/v1')+'jobs',{"metadata":{"name":"x"},"spec":{"template":{"spec":{"restartPolicy":"Never",**pod}}}}),
 ('POST',A('batch/v1')+'cronjobs',{"metadata":{"name":"x"},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",**pod}}}}}}),
 ('POST',A('autoscaling/v2')+'horizontalpodautoscalers',{"metadata":{"name":"x"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"x","apiVersion":"apps/v1"}}}),
 ('POST',A('networking.k8s.io/v1')+'ingresses',{"metadata":{"name":"x"},"spec":{"rules":[{"host":"a.b","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}),
 ('POST',A('networking.k8s.io/v1')+'networkpolicies',{"metadata":{"name":"x"},"spec":{"podSelector":{},"ingress":[{"ports":[{"port":80}]}]}}),
 ('POST','/apis/networking.k8s.io/v1/ingressclasses',{"metadata":{"name":"x"},"spec":{"controller":"a.b/c"}}),
 ('POST',A('policy/v1')+'poddisruptionbudgets',{"metadata":{"name":"x"},"spec":{"minAvailable":1,"selector":sel}}),
 ('POST',A('rbac.authorization.k8s.io/v1')+'roles',{"metadata":{"name":"x"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}),
 ('POST',A('rbac.authorization.k8s.io/v1')+'rolebindings',{"metadata":{"name":"x"},"roleRef":{"kind":"Role","name":"x","apiGroup":"rbac.authorization.k8s.io"},"subjects":[{"kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s","namespace":"default"}]}),
 ('POST','/apis/rbac.authorization.k8s.io/v1/clusterroles',{"metadata":{"name":"x"},"rules":[]}),
 ('POST','/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',{"metadata":{"name":"x"},"roleRef":{"kind":"ClusterRole","name":"x"},"subjects":[]}),
 ('POST',A('coordination.k8s.io/v1')+'leases',{"metadata":{"name":"x"},"spec":{"holderIdentity":"a","leaseDurationSeconds":5,"renewTime":"2026-01-01T00:00:00.5Z"}}),
 ('POST',A('discovery.k8s.io/v1')+'endpointslices',{"metadata":{"name":"x"},"addressType":"IPv4","endpoints":[{"addresses":["1.2.3.4"]}],"ports":[{"port":80}]}),
 ('POST',A('events.k8s.io/v1')+'events',{"metadata":{"name":"y"},"eventTime":"2026-01-01T00:00:00.5Z","regarding":{"kind":"Pod","name":"x","namespace":"default"},"reason":"R","action":"A","type":"Normal","reportingController":"a.b/c","reportingInstance":"i"}),
 ('POST','/apis/storage.k8s.io/v1/storageclasses',{"metadata":{"name":"x"},"provisioner":"a.b/c"}),
 ('POST','/apis/scheduling.k8s.io/v1/priorityclasses',{"metadata":{"name":"x"},"value":1}),
 ('POST','/apis/storage.k8s.io/v1/csidrivers',{"metadata":{"name":"x"},"spec":{}}),
 ('POST','/apis/node.k8s.io/v1/runtimeclasses',{"metadata":{"name":"x"},"handler":"h"}),
 ('POST','/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas',{"metadata":{"name":"x"},"spec":{"priorityLevelConfiguration":{"name":"exempt"}}}),
 ('POST','/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations',{"metadata":{"name":"x"},"webhooks":[{"name":"a.b.c","clientConfig":{"url":"https://x.y/z"},"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"operations":["CREATE"],"apiGroups":["x.y"],"apiVersions":["v1"],"resources":["zs"]}]}]}),
]
apply='application/apply-patch+yaml'; merge='application/merge-patch+json'; smp='application/strategic-merge-patch+json'
def T(o,av,k,**more): return {"apiVersion":av,"kind":k,"metadata":{"name":o},**more}
patches=[
 (N+'configmaps/x',{"data":{"k":None,"z":"1"}},merge,''),
 (A('apps/v1')+'deployments/x',{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"},{"name":"d","image":"k"}]}}}},smp,''),
 (A('apps/v1')+'deployments/x',T('x','apps/v1','Deployment',spec={"replicas":4}),apply,'?fieldManager=m'),
 (A('apps/v1')+'deployments/x',T('x','apps/v1','Deployment',spec={"replicas":4,"template":{"spec":{"containers":[{"name":"c","image":"zz"}]}}}),apply,'?fieldManager=m'),
 (A('apps/v1')+'deployments/x',T('x','apps/v1','Deployment',spec={"replicas":4,"template":{"spec":{"containers":[{"name":"c","image":"zz"}]}}}),apply,'?fieldManager=m&force=true'),
 (A('apps/v1')+'deployments/x/scale',{"spec":{"replicas":7}},merge,''),
 (A('apps/v1')+'deployments/x/status',{"status":{"replicas":7}},merge,''),
 (A('apps/v1')+'deployments/x',{"metadata":{"managedFields":[]}},merge,''),
 (A('apps/v1')+'deployments/x',{"spec":{"paused":True}},merge,''),
 (A('apps/v1')+'deployments/new',T('new','apps/v1','Deployment',spec={"selector":sel,"template":tmpl}),apply,'?fieldManager=m'),
 (N+'services/x',T('x','v1','Service',spec={"ports":[{"port":80,"protocol":"UDP"}]}),apply,'?fieldManager=m'),
 (N+'services/x',T('x','v1','Service',spec={"ports":[{"port":80,"protocol":"TCP","targetPort":8080}]}),apply,'?fieldManager=m&force=true'),
 (N+'pods/y',{"metadata":{"finalizers":["a.b/c"]}},merge,''),
 (N+'pods/y',{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"z"}]}]}},smp,''),
 (N+'pods/y',{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","image":"other"}]}},smp,''),
]
bad=0
def compare(name,a,b):
    global bad
    d=[x for x in walk(norm(a[1]),norm(b[1]))]
    if a[0]!=b[0]: d.insert(0,('code',a[0],b[0]))
    if d:
        bad+=1; print('##',name)
        for p,x,y in d[:12]: print('   ',p,'\n      ours',json.dumps(x)[:400],'\n      peer',json.dumps(y)[:400])
for m,p,b in cases: compare(m+' '+p+' '+b['metadata']['name'],ours(m,p,b),peer(m,p,b))
for p,b,ct,q in patches: compare('PATCH '+p+q+' '+json.dumps(b)[:90],ours('PATCH',p+q,b,ct),peer('PATCH',p+q,b,ct))
print(bad,'differ of',len(cases)+len(patches))
