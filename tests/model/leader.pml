/* Leadership by lease with fenced writes (docs/protocol.md 4.8, rendezvous/state/leader_lease and etcd_store) as a model
 * for spin. docs/model.md says what it covers; model_test.cc runs it. Assertions are numbered as there.
 *
 * A server that is paused is one that makes no step. Time passes in sixths of the lease's time to live. */

#ifndef S
#define S 3 /* servers */
#endif
#ifndef LEADERS
#define LEADERS 3 /* elections, one after the other */
#endif
#ifndef WRITES
#define WRITES 3 /* rounds that are assigned */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1 /* a write is sent again, and etcd may apply the first copy later */
#endif
#define TTL 6
#define OWN 4 /* a leader stops acting that long after it sent its last renewal */

#define FOLLOWS 0
#define CAMPAIGNS 1
#define READS 2
#define LEADS 3

/* ---- etcd */
byte holder;      /* epoch of the leader's key; 0: there is none */
byte latest;      /* epoch of the latest leader */
byte left;        /* until the key's lease may expire */
byte record;      /* the last round in it */
byte writes;      /* that were applied */
chan net = [2] of { byte, byte, byte, byte, byte }; /* server, epoch, writes before, round, try */

/* ---- servers */
byte state[S];
byte epoch[S];
byte own[S];      /* how long it may act yet */
bit asked[S];     /* a renewal is under way */
bit kept[S];      /* etcd has renewed the lease, the answer is under way */
byte age[S];      /* of the question */
byte round[S];    /* the last one that it knows of */
byte seen[S];     /* writes before its next one */
bit writing[S];
bit sent[S];
byte try[S];
byte answer[S];   /* to its write: 0 none, 1 written, 2 another server leads */

/* ---- what nobody in the real world sees */
byte told;        /* the last round that a launcher was told */
byte timeouts;

#define MAY_ACT(i) (state[i] == LEADS && own[i] > 0)

inline begin_anew(i) {
  state[i] = FOLLOWS; epoch[i] = 0; own[i] = 0; asked[i] = 0; kept[i] = 0; age[i] = 0; round[i] = 0; seen[i] = 0;
  writing[i] = 0; sent[i] = 0; try[i] = 0; answer[i] = 0
}

inline tell(i) {
#ifndef MISTAKE_TELLS_BEFORE_WRITTEN
  assert(record >= round[i]); /* 3: what a launcher was told is in the record */
#endif
  if :: round[i] > told -> told = round[i] :: else fi /* a paused server may say it late */
}

proctype server(byte me) {
end:
  do
  :: d_step { state[me] == FOLLOWS && holder == 0 && latest < LEADERS -> /* its lease is granted */
       state[me] = CAMPAIGNS; own[me] = OWN;
#ifdef MISTAKE_READS_EARLY
       round[me] = record; seen[me] = writes
#endif
     }
  :: d_step { state[me] == CAMPAIGNS && holder == 0 && latest < LEADERS ->
       latest++; holder = latest; left = TTL; epoch[me] = latest; state[me] = READS }
  :: d_step { state[me] == CAMPAIGNS -> begin_anew(me) }
  :: d_step { state[me] == READS && holder == epoch[me] ->
#ifndef MISTAKE_READS_EARLY
       round[me] = record; seen[me] = writes;
#endif
       assert(round[me] >= told); /* 3 */
       state[me] = LEADS
     }
  :: d_step { state[me] >= READS && !asked[me] -> asked[me] = 1; kept[me] = 0; age[me] = 0 }
  :: d_step { asked[me] && !kept[me] && holder == epoch[me] -> kept[me] = 1; left = TTL }
  :: d_step { kept[me] && own[me] > 0 -> /* the answer arrives */
#ifdef MISTAKE_COUNTS_FROM_ANSWER
       own[me] = OWN;
#else
       if :: OWN - age[me] > own[me] -> own[me] = OWN - age[me] :: else fi;
#endif
       asked[me] = 0; kept[me] = 0; age[me] = 0
     }
  :: d_step { asked[me] -> asked[me] = 0; kept[me] = 0; age[me] = 0 } /* no answer */
  :: d_step { state[me] >= READS -> begin_anew(me) } /* it steps down or is killed, and is started again */
  :: d_step { MAY_ACT(me) -> assert(holder == epoch[me] && latest == epoch[me]) } /* 1: one server may act */
  :: d_step { MAY_ACT(me) && !writing[me] && round[me] < WRITES ->
       writing[me] = 1; round[me]++;
#ifdef MISTAKE_TELLS_BEFORE_WRITTEN
       tell(me)
#endif
     }
  :: d_step { writing[me] && !sent[me] && nfull(net) -> net ! me, epoch[me], seen[me], round[me], try[me]; sent[me] = 1 }
  :: d_step { sent[me] && !answer[me] && timeouts < TIMEOUTS -> timeouts++; try[me]++; sent[me] = 0;
#ifdef MISTAKE_TIMEOUT_IS_WRITTEN
       writing[me] = 0; seen[me]++; tell(me)
#endif
     }
  :: d_step { answer[me] == 1 ->
#ifndef MISTAKE_TELLS_BEFORE_WRITTEN
       tell(me);
#endif
       seen[me]++; writing[me] = 0; sent[me] = 0; try[me] = 0; answer[me] = 0
     }
  :: d_step { answer[me] == 2 -> begin_anew(me) }
  od
}

/* Of the copies that are under way etcd gets any one next. */
proctype etcd() {
  byte i, e, before, r, t, result;
end:
  do
  :: atomic { nempty(net) ->
       net ? i, e, before, r, t;
       if :: nempty(net) -> net ! i, e, before, r, t; net ? i, e, before, r, t :: true fi;
       d_step {
         result = 2;
         if
#ifndef MISTAKE_NO_FENCE
         :: e != holder -> skip
#endif
#ifndef MISTAKE_ANY_ORDER
         :: before != writes -> if :: e == holder && writes == before + 1 -> result = 1 :: else fi
#endif
         :: else ->
           assert(e == latest); /* 2: no write of an older leader is applied */
           assert(r > record);  /* 2: nor one that is older than the record */
           record = r; writes++; result = 1
         fi;
         if :: epoch[i] == e && sent[i] && try[i] == t && seen[i] == before -> answer[i] = result :: else fi;
         i = 0; e = 0; before = 0; r = 0; t = 0; result = 0
       }
     }
  :: d_step { holder && left == 0 -> holder = 0 }
  od
}

proctype time() {
  byte k;
end:
  do
  :: d_step { true ->
       if :: left > 0 -> left-- :: else fi;
       for (k : 0 .. S - 1) {
         if :: own[k] > 0 -> own[k]-- :: else fi;
         if :: asked[k] && age[k] < OWN -> age[k]++ :: else fi
       }
       k = 0
     }
  od
}

init {
  byte k;
  atomic {
    run etcd(); run time();
    for (k : 0 .. S - 1) { run server(k) }
    k = 0
  }
}
